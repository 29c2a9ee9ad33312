"""Users files of Artemis: hashes that it made, plain passwords, SCRAM keys, and the syntax of Java's properties."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest

from support.routing import manual_time
from understudy.cli.node.user import convert
from understudy.errors import AuthenticationFailed, ConfigError
from understudy.runtime.base.environment import SystemEntropy
from understudy.runtime.logins.users_file import UsersFile
from understudy.security.authentication import Authenticator, PasswordCheck, Principal, parse_roles, parse_users
from understudy.security.password_hashes import ArtemisHash, HashParameters, PasswordHash
from understudy.security.properties_file import entries, replaced

FILE = "artemis-users.properties"
SALT = "030A11181F262D343B424950575E656C737A81888F969DA4ABB2B9C0C7CED5DC"
#: Computed by Java's SecretKeyFactory "PBKDF2WithHmacSHA1", 1,024 iterations, 512 bits.
ROLES = parse_roles("amq = ann", file="roles")
ANN = (
    f"ENC(1024:{SALT}:5E96A9A58E88897D6C45DA57E88493D3C60E0D939F474D6922A0B9DE7EA95147"
    "5E544E09EA7A05CC50368440DF250818A89BCCB52E93A6E845A973D01063E61D)"
)
ANN_LOWER = f"ENC({ANN[4:-1].lower()})"
UMLAUTS = (
    f"ENC(1024:{SALT}:5EBFC3ABACBF8B3015BA8790349A4616846A6FA4FABE01AFAF4F85930A3367A6"
    "1F73B425A6C9577D449A762B0ACA7C1B36BB351A518B85F6BCC4102B3A44C9B8)"
)


def read(text: str) -> dict[str, ArtemisHash | PasswordHash]:
    return parse_users(text, file=FILE, entropy=SystemEntropy())


def login(users: Authenticator, user: str, password: str) -> Principal:
    begun = users.begin(user, password)
    assert isinstance(begun, PasswordCheck)
    return begun.finish(begun.run())


def test_a_hash_of_artemis_is_verified() -> None:
    users = read(f"ann = {ANN}\numlaut={UMLAUTS}\n")
    assert users["ann"].verify("secret-of-ann")
    assert not users["ann"].verify("secret-of-ben")
    assert users["umlaut"].verify("pässwörd")
    assert str(users["ann"]) == ANN_LOWER


def test_a_login_replaces_the_hash_in_the_file_and_in_memory(tmp_path: Path) -> None:
    file = tmp_path / FILE
    cheap = PasswordHash.make("secret-of-ben", SystemEntropy(), HashParameters(2, 1, 1))
    before = f"# users\nben = {cheap}\nann={ANN_LOWER}\n"
    file.write_text(before)
    file.chmod(0o640)
    users = Authenticator(
        read(before),
        parse_roles("amq = ann", file="roles"),
        SystemEntropy(),
        manual_time(),
        rehashed=UsersFile(file).rehashed,
    )
    with pytest.raises(AuthenticationFailed):
        login(users, "ann", "wrong")
    assert file.read_text() == before
    assert login(users, "ann", "secret-of-ann").roles == {"amq"}
    after = file.read_text()
    assert after.splitlines()[:2] == before.splitlines()[:2]
    assert file.stat().st_mode & 0o777 == 0o640
    stored = read(after)["ann"]
    assert isinstance(stored, PasswordHash)
    assert stored.verify("secret-of-ann")
    assert users.stored("ann") == stored
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_password_that_was_changed_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text(f"ann = {UMLAUTS}\n")
    UsersFile(file).rehashed(
        "ann", ArtemisHash.parse(ANN), PasswordHash.make("x", SystemEntropy(), HashParameters(2, 1, 1))
    )
    assert file.read_text() == f"ann = {UMLAUTS}\n"


def test_a_file_that_cannot_be_replaced_stops_no_login(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    users = Authenticator(
        read(f"ann = {ANN}"),
        {},
        SystemEntropy(),
        manual_time(),
        rehashed=UsersFile(tmp_path / "missing" / FILE).rehashed,
    )
    assert login(users, "ann", "secret-of-ann").user == "ann"
    assert "stays in the users file" in caplog.text


def test_the_work_of_a_check_does_not_tell_the_kind_of_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    users = Authenticator(read(f"ann = {ANN}"), {}, SystemEntropy(), manual_time())
    costs: list[HashParameters] = []
    real = PasswordHash.salted

    def counted(password: str, salt: bytes, parameters: HashParameters) -> PasswordHash:
        costs.append(parameters)
        return real(password, salt, parameters)

    monkeypatch.setattr(PasswordHash, "salted", counted)
    with pytest.raises(AuthenticationFailed):
        login(users, "ann", "wrong")
    assert costs == [users.decoy.parameters], "a wrong password costs a scrypt hash, like that of an unknown user"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("ann = secret", r"users.properties:1: user 'ann': the password is not hashed.*`understudy user convert "),
        ("ann|SCRAM-SHA-256 = 00:4096:00:00", r":1: user 'ann': SCRAM keys cannot be used.*understudy user hash ann"),
        ("ann = ENC(-3c2a5f)", r":1: user 'ann': .*not of the form.*understudy user hash ann"),
        ("ann = ENC(0:00:00)", r"0 iterations"),
        ("ann = ENC(9999999999:00:00)", r"9999999999 iterations"),
        ("ann = ENC(1024::00)", r"wants a salt and 64 bytes"),
        ("ann = ENC(1024:zz:00)", r"parts that are no numbers"),
    ],
)
def test_an_entry_that_cannot_be_used_names_the_next_step(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        read(text)
    assert "secret" not in str(caught.value)


def test_entries_follow_the_syntax_of_java() -> None:
    text = "! a\n# b\n\n a\\:b = 1\nc 2\nd:3\\\n   4\ne = \\u00e4\\t\nmy user = x\nlast="
    found = [(entry.line, entry.key, entry.value) for entry in entries(text, FILE)]
    assert found == [
        (4, "a:b", "1"),
        (5, "c", "2"),
        (6, "d", "34"),
        (8, "e", "ä\t"),
        (9, "my user", "x"),
        (10, "last", ""),
    ]
    assert replaced(text, FILE, {"c": "two", "d": "three"}) == text.replace("c 2", "c two").replace(
        "3\\\n   4", "three"
    )


def test_the_command_hashes_plain_passwords_and_keeps_everything_else(tmp_path: Path) -> None:
    file = tmp_path / FILE
    before = f"# by hand\nann = secret-of-ann\nben = {ANN}\n\ncat:with blanks\n"
    file.write_text(before)
    runner = click.testing.CliRunner()
    assert runner.invoke(convert, [str(file), "--dry-run"]).exit_code == 0
    assert file.read_text() == before
    done = runner.invoke(convert, [str(file)])
    assert done.exit_code == 0, done.output
    users = read(file.read_text())
    assert users["ann"].verify("secret-of-ann")
    assert users["ben"] == ArtemisHash.parse(ANN)
    assert users["cat"].verify("with blanks")
    assert file.read_text().startswith("# by hand\nann = ENC(scrypt:")
    assert "secret" not in done.output


def test_the_command_names_scram_entries_and_fails(tmp_path: Path) -> None:
    file = tmp_path / FILE
    file.write_text("ann|SCRAM-SHA-512 = 00:4096:00:00\nben = secret-of-ben\n")
    done = click.testing.CliRunner().invoke(convert, [str(file)])
    assert done.exit_code == 1
    assert "understudy user hash ann" in done.output
    assert "ann|SCRAM-SHA-512 = 00:4096:00:00\nben = ENC(scrypt:" in file.read_text()
