#!/usr/bin/env bash
# Deploys over real ssh with become and with security on, and uses what was deployed.
#
#   deploy.sh         the primary alone, once: `make ssh`, a part of `make test`
#   deploy.sh drill   the pair, twice, and a drill: `make ssh-drill`, a part of `make test-all`
set -euo pipefail
cd "$(dirname "$0")/../.."
play() { ansible-playbook --inventory tests/ssh/hosts.yml --ssh-extra-args "-o ControlMaster=auto -o ControlPersist=60s" "$@"; }
on() { ssh -F "$UNDERSTUDY_SSH_CONFIG" "$@"; }
limit=(--limit h1)
[ "${1:-}" != drill ] || limit=()
log=$(mktemp)
trap 'rm -f "$log"' EXIT

echo "--- without become the preflight refuses, and says what to set"
if play playbooks/preflight.yml --limit h1 --extra-vars '{"ansible_become": false}' >"$log" 2>&1; then
    cat "$log" && echo "accepted without root" && exit 1
fi
grep -q "Set ansible_become: true for the group broker" "$log" || { cat "$log"; exit 1; }

echo "--- the first deployment, with security on and no package index in reach"
play playbooks/site.yml "${limit[@]}"

echo "--- clients with a login are served, clients without one are refused"
url='(tcp://127.0.0.31:61616,tcp://127.0.0.32:61616)?ha=true'
understudy=/opt/understudy/current/bin/understudy
on h1 "umask 077; echo shop-password-of-a-test >password"
on h1 "$understudy produce --url '$url' --user shop --password-file password --queue orders --count 100 --json"
on h1 "$understudy consume --url '$url' --user shop --password-file password --queue orders --count 100 --json"
! on h1 "$understudy consume --url '$url' --queue orders --count 1 --idle-timeout 5" || exit 1
for file in artemis-users.properties artemis-roles.properties broker.xml; do
    test "$(on h1 "sudo stat --format '%a %U:%G' /opt/understudy/instance/etc/$file")" = "640 root:understudy"
done
test "$(on h1 id --user understudy)" = 961

if [ "${1:-}" = drill ]; then
    echo "--- a second deployment changes nothing, hashes with random salts included"
    play playbooks/site.yml >"$log" || { cat "$log"; exit 1; }
    tail -n 4 "$log"
    ! grep -E "changed=[1-9]" "$log" || { cat "$log"; exit 1; }
    test "$(on h2 id --user understudy)" = 961

    echo "--- the drill kills on the hosts, not here"
    play playbooks/drill.yml --extra-vars '{"drill_rounds": 1, "drill_messages": 6000, "drill_rate": 150}' \
        --extra-vars "drill_report_file=$(dirname "$UNDERSTUDY_SSH_CONFIG")/report.json"
fi
