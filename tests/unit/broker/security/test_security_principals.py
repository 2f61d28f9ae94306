"""Kafka's mapping rules, with the cases that Kafka's own tests have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.broker.security.principals import InvalidRule, MappingRules, NoRuleApplies

RULES = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "User:duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "User:duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "User:DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "User:DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "User:OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_decides(name: str, principal: str) -> None:
    assert MappingRules(RULES).principal(name) == principal


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "DEFAULT/U",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:(/$1/",
        "RULE:(?=x)/$1/",
    ],
)
def test_what_is_no_rule_is_refused_in_one_line(rules: str) -> None:
    with pytest.raises(InvalidRule, match=r"^[^\n]+$"):
        MappingRules(rules)


@pytest.mark.parametrize(
    ("rules", "count"),
    [
        ("", 0),
        ("DEFAULT", 1),
        ("  RULE:// ,  DEFAULT  ", 2),
        (",,RULE://,,,DEFAULT,,", 2),
        (",   , , ,      , , ,   ", 0),
        ("RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/", 1),
        (
            "RULE:,RULE:,/,RULE:,\\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,"
            "RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
            5,
        ),
    ],
)
def test_rules_are_told_apart(rules: str, count: int) -> None:
    assert len(MappingRules(rules)) == count


def test_escapes_in_names_and_replacements() -> None:
    rules = MappingRules("RULE:^CN=((\\\\, *|\\w)+)(,.*|$)/$1/,DEFAULT")
    assert rules.principal("CN=Tkac\\, Adam,OU=ITZ,DC=geodis,DC=cz") == "User:Tkac\\, Adam"
    assert MappingRules("RULE:^CN=(.*)$/\\$1-$1-$2-$12/").principal("CN=x") == "User:$1-x-$2-x2"
    assert MappingRules("RULE:^CN=(.*)$/$0/L").principal("CN=X") == "User:cn=x"


def test_every_occurrence_is_replaced_as_java_does() -> None:
    assert MappingRules("RULE:.*/x/").principal("abc") == "User:xx"
    assert MappingRules("RULE:CN=(.*?)/$1/").principal("CN=duke") == "User:duke"


def test_no_rule_is_no_principal() -> None:
    with pytest.raises(NoRuleApplies):
        MappingRules("RULE:^CN=(.*)$/$1/").principal("OU=x")
    with pytest.raises(NoRuleApplies):
        MappingRules("RULE:CN=x/y/").principal("CN=x,OU=z")  # a part is no match


@given(st.text(max_size=60))
def test_default_is_the_name_itself(name: str) -> None:
    assert MappingRules().principal(name) == f"User:{name}"
