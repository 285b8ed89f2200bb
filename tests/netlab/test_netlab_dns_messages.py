"""The laboratory's DNS messages can be read back, and a pointer in a foreign answer is followed."""

import pytest

from e2e.netlab.inside import dns


@pytest.mark.parametrize(
    ("qtype", "values"), [("A", ["10.96.0.1", "10.96.0.2"]), ("AAAA", ["fd00::1"]), ("TXT", ["hi"])]
)
def test_an_answer_reads_back(qtype, values):
    query = dns.question("Nginx-svc.default.svc.cluster.local", qtype, 77)
    assert dns.read_question(query) == (77, "nginx-svc.default.svc.cluster.local", qtype)
    assert dns.read_answer(dns.answer(query, values, known=True)) == (0, values)


def test_an_unknown_name_is_nxdomain():
    query = dns.question("nowhere", "A", 1)
    assert dns.read_answer(dns.answer(query, [], known=False)) == (dns.NXDOMAIN, [])


def test_a_compressed_name_is_followed():
    query = dns.question("a.b", "A", 1)
    record = b"\xc0\x0c" + b"\0\1\0\1\0\0\0\5\0\4" + bytes([10, 0, 0, 1])
    message = b"\0\1\x81\x80\0\1\0\1\0\0\0\0" + query[12:] + record
    assert dns.read_answer(message) == (0, ["10.0.0.1"])
