"""The command line: create, list, enter, disturb and destroy the hosts of a lab."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import click

from understudy_lab import image as images
from understudy_lab.errors import CannotRun, LabError
from understudy_lab.hosts import Lab, number_of

SKIPPED = 77
"""Exit code of ``check`` on a machine that cannot run a lab."""
SCRATCH = Path(__file__).resolve().parents[3] / ".scratch" / "lab"


@click.group(
    help=f"{__import__('understudy_lab').__doc__}\n\nExit codes: 0 done, 1 failed, 2 wrong usage, 77 cannot run here."
)
@click.option(
    "--name", default="lab", envvar="UNDERSTUDY_LAB", show_default=True, help="The lab; several can run at once."
)
@click.option(
    "--debian",
    type=click.Choice(sorted(images.RELEASES)),
    default=images.DEFAULT_RELEASE,
    envvar="UNDERSTUDY_LAB_DEBIAN",
    show_default=True,
    help="Release of Debian that new hosts have; those that run keep theirs.",
)
@click.pass_context
def main(context: click.Context, name: str, debian: str) -> None:
    context.obj = Lab(SCRATCH / name, name, images.present(debian))


@main.command()
def check() -> None:
    """Whether this machine can run a lab; changes nothing."""
    images.check()


@main.command()
@click.pass_obj
def image(lab: Lab) -> None:
    """Make the disk image of all hosts, unless it is there (about four minutes)."""
    print(images.make(print, lab.image.release).directory)


@main.command()
@click.argument("count", type=click.IntRange(1, 20))
@click.option("--memory", default=512, show_default=True, help="MiB of each host.")
@click.pass_obj
def create(lab: Lab, count: int, memory: int) -> None:
    """Boot COUNT hosts, h1 and on; those that run are left alone."""
    images.make(print, lab.image.release)
    begun = time.monotonic()
    lab.create(count, memory)
    print(f"{count} hosts after {time.monotonic() - begun:.1f} s; ssh -F {lab.ssh_config} h1")


@main.command("list")
@click.option("--json", "as_json", is_flag=True, help="Write JSON.")
@click.pass_obj
def list_(lab: Lab, as_json: bool) -> None:
    """Show all hosts."""
    found = lab.hosts()
    if as_json:
        print(json.dumps([asdict(host) for host in found], indent=2))
        return
    for host in found:
        print(f"{host.name:4} {host.address:12} {host.state:8} {host.pid or ''}")


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("command", nargs=-1)
@click.option("--user", default="root", show_default=True)
@click.pass_obj
def enter(lab: Lab, host: str, command: Sequence[str], user: str) -> None:
    """Open a shell on HOST, or run COMMAND there."""
    number_of(host)
    os.execvp("ssh", ["ssh", "-F", str(lab.ssh_config), "-l", user, host, *command])


@main.command()
@click.argument("hosts", nargs=-1, required=True)
@click.pass_obj
def start(lab: Lab, hosts: Sequence[str]) -> None:
    """Boot hosts that are off."""
    lab.start(hosts)


@main.command("shut-down")
@click.argument("hosts", nargs=-1, required=True)
@click.pass_obj
def shut_down(lab: Lab, hosts: Sequence[str]) -> None:
    """Switch hosts off cleanly, as `systemctl poweroff` there."""
    for host in hosts:
        lab.shut_down(host)


@main.command("power-cut")
@click.argument("hosts", nargs=-1, required=True)
@click.pass_obj
def power_cut(lab: Lab, hosts: Sequence[str]) -> None:
    """Switch hosts off at once."""
    for host in hosts:
        lab.cut_power(host)


@main.command()
@click.argument("host")
@click.pass_obj
def pause(lab: Lab, host: str) -> None:
    """Stop the kernel of a host."""
    lab.pause(host)


@main.command()
@click.argument("host")
@click.pass_obj
def resume(lab: Lab, host: str) -> None:
    """Let a paused host go on."""
    lab.resume(host)


@main.command()
@click.argument("one")
@click.argument("other")
@click.option("--one-way", is_flag=True, help="Only packets from ONE to OTHER.")
@click.pass_obj
def cut(lab: Lab, one: str, other: str, one_way: bool) -> None:
    """Drop the packets between two hosts until `heal`."""
    numbers = number_of(one), number_of(other)
    (lab.network.cut_one_way if one_way else lab.network.cut)(*numbers)


@main.command()
@click.pass_obj
def heal(lab: Lab) -> None:
    """End all cuts."""
    lab.network.heal()


@main.command()
@click.argument("rows", nargs=-1)
@click.option("--list", "only_list", is_flag=True, help="Show the rows and run none.")
@click.option("--json", "json_file", type=click.File("w"), help="Write the results of this run as JSON; - is stdout.")
@click.option("--page", is_flag=True, help="Write the last result of each row into docs/operate/faults-and-rolls.md.")
@click.option("--keep", is_flag=True, help="Leave the hosts running, and use those that an earlier run has left.")
@click.pass_obj
def faults(lab: Lab, rows: Sequence[str], only_list: bool, json_file: TextIO | None, page: bool, keep: bool) -> None:
    """Run the table of faults and rolls: all ROWS, or those named or whose names begin so (`killed`).

    Seven hosts with a pair on a shared store, a replicated pair, a witness and clients that keep ledgers. A line for
    each step goes to stderr. Exit code 1 if a row was not ok: a message was lost or doubled, or a pair did not come
    back.
    """
    # The hosts' programs are imported here, so that the other commands start fast.
    from understudy_lab import bed as beds
    from understudy_lab import table

    chosen = table.chosen(rows)
    if only_list:
        for row in chosen:
            print(f"{row.key:36} {row.name}")
        return
    images.make(print, lab.image.release)
    bed = beds.Bed(lab, beds.scratch_of(lab.directory.name))
    begun = time.monotonic()

    def say(line: str) -> None:
        print(f"{time.monotonic() - begun:6.0f} s  {line}", file=sys.stderr, flush=True)

    try:
        if not (keep and bed.look()):
            lab.destroy()
            say(f"deploying two pairs on {beds.HOSTS} hosts")
            say(f"site took {bed.deploy():.1f} s")
        results = table.carry_out(bed, chosen, say)
    finally:
        if not keep:
            lab.destroy()
    if json_file:
        json_file.write(json.dumps([asdict(result) for result in results], indent=2) + "\n")
    if page:
        table.write_page()
    bad = [result.key for result in results if not result.ok]
    say(f"{len(results) - len(bad)} of {len(results)} rows are ok" + (f"; not: {', '.join(bad)}" if bad else ""))
    sys.exit(1 if bad else 0)


@main.command()
@click.pass_obj
def destroy(lab: Lab) -> None:
    """Switch all hosts off and remove the lab; the image stays."""
    lab.destroy()


def run_command() -> None:
    """Entry point; errors are one line with an exit code."""
    try:
        main(prog_name="tests/lab/lab")
    except CannotRun as error:
        print(f"cannot run a lab: {error}", file=sys.stderr)
        sys.exit(SKIPPED)
    except LabError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
