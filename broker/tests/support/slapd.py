"""A real OpenLDAP server of Debian's package on a loopback port, ended by process id."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from support.ports import free_port

SLAPD: Final = Path("/usr/sbin/slapd")
SUFFIX: Final = "dc=example,dc=org"
MANAGER: Final = f"cn=manager,{SUFFIX}"
MANAGER_PASSWORD: Final = "the password of the manager"
#: Only against a test that hangs.
READY_S: Final = 30

#: ada is in the group producers, which is in the group everything; bob is in no group, and has the role of his
#: attribute; two entries have the mail address of twins.
ENTRIES: Final = f"""
dn: {SUFFIX}
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ou=people,{SUFFIX}
objectClass: organizationalUnit
ou: people

dn: ou=far,ou=people,{SUFFIX}
objectClass: organizationalUnit
ou: far

dn: ou=groups,{SUFFIX}
objectClass: organizationalUnit
ou: groups

dn: uid=ada,ou=people,{SUFFIX}
objectClass: inetOrgPerson
uid: ada
cn: Ada
sn: A
mail: twin@example.org
userPassword: password of ada

dn: uid=bob,ou=people,{SUFFIX}
objectClass: inetOrgPerson
uid: bob
cn: Bob
sn: B
mail: twin@example.org
description: cn=everything,ou=groups,{SUFFIX}
userPassword: password of bob

dn: uid=o\\,d\\28d\\29 *,ou=far,ou=people,{SUFFIX}
objectClass: inetOrgPerson
uid: o,d(d) *
cn: Odd
sn: O
userPassword: password of odd

dn: cn=producers,ou=groups,{SUFFIX}
objectClass: groupOfNames
cn: producers
member: uid=ada,ou=people,{SUFFIX}
member: uid=o\\,d\\28d\\29 *,ou=far,ou=people,{SUFFIX}

dn: cn=everything,ou=groups,{SUFFIX}
objectClass: groupOfNames
cn: everything
member: cn=producers,ou=groups,{SUFFIX}
"""


def installed() -> bool:
    """Whether the package is there."""
    return SLAPD.exists()


class Slapd:
    """One server with the entries above; started by ``start``."""

    def __init__(self, directory: Path, *, tls: tuple[Path, Path] | None = None, referral: str | None = None) -> None:
        """Args:
        directory: Directory of the files of the server; it is made.
        tls: PEM files, its chain with the key, and the authority; then it has a second port for ldaps, and StartTLS.
        referral: URL of the server that it names for entries that it does not have.
        """
        self.port, self.tls_port = free_port(), free_port()
        self.authority = None if tls is None else tls[1]
        self._config = directory / "slapd.conf"
        self._log = directory / "slapd.log"
        self._process: subprocess.Popen[bytes] | None = None
        data = directory / "data"
        data.mkdir(parents=True)
        lines = [f"include /etc/ldap/schema/{name}.schema" for name in ("core", "cosine", "inetorgperson")]
        lines += [f"pidfile {directory}/pid", "modulepath /usr/lib/ldap", "moduleload back_mdb"]
        if referral is not None:
            lines.append(f"referral {referral}")
        if tls is not None:
            lines += [
                f"TLSCertificateFile {tls[0]}",
                f"TLSCertificateKeyFile {tls[0]}",
                f"TLSCACertificateFile {tls[1]}",
            ]
        lines += ["database mdb", "maxsize 10485760", f'suffix "{SUFFIX}"', f'rootdn "{MANAGER}"']
        lines += [f'rootpw "{MANAGER_PASSWORD}"', f"directory {data}"]
        # passwords are for binds only; other entries are read by users that have logged in
        lines += ["access to attrs=userPassword by anonymous auth by * none", "access to * by users read by * none"]
        self._config.write_text("\n".join(lines) + "\n")
        entries = directory / "entries.ldif"
        entries.write_text(ENTRIES.lstrip())
        subprocess.run(
            ["/usr/sbin/slapadd", "-f", str(self._config), "-l", str(entries)], check=True, capture_output=True
        )

    @property
    def url(self) -> str:
        return f"ldap://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"ldaps://127.0.0.1:{self.tls_port}"

    def start(self) -> Slapd:
        """Start it and wait until it accepts connections."""
        addresses = f"{self.url}/ {self.tls_url}/" if self.authority else f"{self.url}/"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(SLAPD), "-d", "0", "-f", str(self._config), "-h", addresses], stdout=log, stderr=log
            )
        end = time.monotonic() + READY_S
        while time.monotonic() < end and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"slapd does not listen: {self._log.read_text()[-2000:]}")

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def login_config(url: str, *more: str, flag: str = "required", without: tuple[str, ...] = ()) -> str:
    """A module for the entries above, as part of a login.config.

    Args:
        url: URL of the LDAP server.
        more: Further options, each as ``name="value"``; they replace those below.
        flag: Control flag of the module, such as ``required``.
        without: Names of options below to leave out.
    """
    options = {
        "connectionURL": url,
        "connectionUsername": MANAGER,
        "connectionPassword": MANAGER_PASSWORD,
        "connectionTimeout": "2000",
        "readTimeout": "2000",
        "userBase": f"ou=people,{SUFFIX}",
        "userSearchMatching": "(uid={0})",
        "userSearchSubtree": "true",
        "roleBase": f"ou=groups,{SUFFIX}",
        "roleName": "cn",
        "roleSearchMatching": "(member={0})",
    }
    for option in more:
        name, _, value = option.partition("=")
        options[name] = value.strip('"')
    text = " ".join(f'{name}="{value}"' for name, value in options.items() if name not in without)
    return f"org.apache.activemq.artemis.spi.core.security.jaas.LDAPLoginModule {flag} {text};"
