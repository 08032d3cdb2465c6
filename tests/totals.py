"""Add up the runs of `make test` from the reports that they left in _build/tests."""

import sys
from xml.etree import ElementTree

from tests.conftest import claims_line

tests = [case for path in sys.argv[1:] for case in ElementTree.parse(path).iter("testcase")]
passed = [case for case in tests if case.find("skipped") is None]
claims = [[claim.get("value") for claim in case.iterfind(".//*[@name='claim']")] for case in passed]
print(f"{len(passed)} tests passed, {len(tests) - len(passed)} skipped; {claims_line(claims)}")
