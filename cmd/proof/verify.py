"""Verifies proofs with aics-tlog: verify.py KEYFILE FOLDER. It shares no code with auditrelay."""

import base64
import hashlib
import pathlib
import sys

import aics_tlog


def leaf(record):
    if len(record) <= 65535:
        return record
    return b'{"record_bytes":%d,"record_sha256":"%s"}' % (len(record), hashlib.sha256(record).hexdigest().encode())


def verify(key, proof, record):
    head, note = proof.split("\n\n", 1)
    lines = head.split("\n")
    assert lines[0] == "c2sp.org/tlog-proof@v1", lines[0]
    index = int(lines[1].removeprefix("index "))
    path = [base64.b64decode(line) for line in lines[2:]]
    checked = aics_tlog.verify_checkpoint(aics_tlog.parse_note(note), key, expected_origin=key.name)
    assert checked.ok, checked.error
    assert aics_tlog.verify_inclusion(aics_tlog.leaf_hash(leaf(record)), index, checked.size, path, checked.root)
    assert not aics_tlog.verify_inclusion(aics_tlog.leaf_hash(b"x" + record), index, checked.size, path, checked.root)


key = aics_tlog.parse_vkey(pathlib.Path(sys.argv[1]).read_text().strip())
proofs = sorted(pathlib.Path(sys.argv[2]).glob("*.tlog-proof"))
for file in proofs:
    verify(key, file.read_text(), file.with_suffix(".json").read_bytes())
assert proofs, "there is no proof"
print(f"{len(proofs)} of {len(proofs)} proofs verify in aics-tlog")
