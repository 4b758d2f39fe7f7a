"""Whether a bot that speaks English told that something did not work.

The words for failing stand in boasts as well: "not a problem", "you can't go wrong", "if there is an issue". So only a
plain statement counts as told. What is denied or only supposed counts for nothing, and the rest may mean either.
"""

from __future__ import annotations

import re

_FLAW = (
    r"(?:problem|issue|error|trouble|outage|failure|difficulty|difficultie|glitch|hiccup|hitch|snag|malfunction"
    r"|time-?out)s?"
)
_BETWEEN = r"(?:(?:still|yet|currently|just|actually|even|now|right now|unfortunately|temporarily|at all) )*"
_DEED = r"(?:payment|order|booking|reservation|charge|refund|transaction|request|purchase)"
_DO = (
    r"(?:process|complete|charge|reach|access|find|place|book|confirm|pay|load|send|submit|authori[sz]e|verify|cancel"
    r"|refund|accept|do|finish|retrieve|fulfil|fulfill|execute|perform|connect|contact|fetch|check|proceed|continue|handle"
    r"|update|go (?:through|ahead|on)|get (?:through|hold|to the|to our|an answer|a response|the)|work|respond|answer"
    rf"|(?:make|take) (?:\w+ ){{0,2}}{_DEED}s?|put (?:\w+ ){{0,4}}through|look (?:\w+ ){{0,3}}up)"
)
_DONE = (
    r"(?:processed|completed|charged|reached|placed|made|taken|booked|confirmed|paid|found|loaded|sent|submitted"
    r"|authori[sz]ed|verified|cancell?ed|refunded|accepted|retrieved|finished|fulfilled|updated|done|put through)"
)
_IDIOM = (
    r"(?:wait|complain|be beat|be beaten|beat|resist|thank|help but|recommend|agree more|ask for|miss|wish for|believe"
    r"|imagine|stress|get enough"
    r"|(?:be|get|go|have been|have gone) (?:any )?(?:happier|easier|better|smoother|faster|more))"
)

_DENIED = (
    rf"\b(?:no|not|never|hardly|without|zero|free of) (?:(?:have|had|seen?|found|find|run|ran|into|been|be|any|an?|the"
    rf"|one|single|more|further|other|real|big|major|slightest|technical|payment) )*{_FLAW}\b",
    rf"\b(?:nobody|no one|no-one) \w+ (?:(?:an?|any) )?{_FLAW}\b",
    rf"\b{_FLAW}-free\b|\bwithout fail\b|\bfail-?(?:safe|proof)\b",
    r"\b(?:not|never|nothing|nobody|none|no \w+(?: \w+)?) (?:(?:has|have|is|was|can|could|ever|once|possibly|really"
    r"|simply|been|at all|think|believe|an?|one|single|thing|anything|something|that) )*"
    r"(?:(?:go|goes|gone|going|went) wrong|wrong|fail|fails|failed|failing|unavailable|unreachable|offline|down"
    r"|out of order|declined|rejected|refused|timed out)\b",
    rf"\b(?:can|could) not (?:(?:possibly|really|quite|just) )*{_IDIOM}\b",
)
_SUPPOSING = (
    r"(?:if|unless|whenever|otherwise|in case|in the (?:unlikely |rare )?event|were there"
    r"|should (?:you|there|any|anything|something|it)|when(?:ever)? (?:an?|any|anything|something|things|there|you))"
)
_SUPPOSED = (
    rf"\b{_SUPPOSING}\b[^,]*",
    r"\b(?:would|could|might|may|can|will|should) (?:not )?(?:have )?(?:fail|failed|go wrong|gone wrong)\b",
)
_OPENS_SUPPOSING = re.compile(rf"\W*(?:(?:and|but|or|so) )?{_SUPPOSING}\b")
_MENDED = re.compile(
    r"\b(?<!once )(?<!until )(?:it|that|this|which|issue|problem|error|trouble) (?:has|is|was|got) "
    r"(?:(?:now|already|since|been|quickly) )*(?:solved|resolved|fixed|sorted)\b"
    r"|\b(?:but|then|and) (?:(?:then|now|finally|afterwards|luckily) )*(?:it|that|this|all|everything|the \w+) "
    r"(?:(?:then|now|finally|has|have) )*(?:worked|went through|gone through|succeeded|is (?:paid|done|placed))\b"
)

_STATED = (
    # It could not be done,
    rf"(?<!you )\b(?:can|could) not {_BETWEEN}(?:seem to )?{_DO}\b",
    rf"\b(?:can|could) not {_BETWEEN}(?:be|get) {_BETWEEN}{_DONE}\b",
    rf"\b(?:unable|not able|not been able|not possible|impossible)(?: for \w+)? to {_BETWEEN}{_DO}\b",
    rf"\bnot (?:manage|managed) to\b|\bfailed to {_DO}\b",
    # did not come about,
    rf"\b(?:do|does|did|has|have|would|will) (?:not|never) {_BETWEEN}(?:work|worked|go through|gone through"
    r"|went through|succeed|succeeded|complete|respond|responded|answer|answered|load|loaded)\b",
    rf"\b(?:is|are|was|were|has|have|been) (?:not|no longer) {_BETWEEN}(?:been )?(?:available|possible|reachable"
    rf"|working|responding|answering|successful|going through|{_DONE})\b"
    r"(?! (?:twice|double|extra|again|more|any|an?|for)\b)",
    r"\bnever (?:went|got) through\b",
    rf"\b(?:no {_DEED}|no money|nothing) (?:was|has been|could be|is) {_DONE}\b(?! (?:twice|double|extra|again)\b)",
    # failed,
    r"(?<!you )\bfailed\b|\b(?:is|are|was|were|keeps|kept) (?:still )?failing\b|\btimed out\b",
    r"\b(?:went|gone|going) wrong\b",
    r"\b(?:is|was|were|been|got) (?:declined|rejected|refused|denied|interrupted|aborted|unsuccessful)\b",
    # is not there,
    rf"\b(?:is|are|was|were|seems|appears|remains|went) (?:to be )?{_BETWEEN}(?:unavailable|unreachable|offline"
    r"|unresponsive|out of order|out of service|down(?! (?:to|by|from|the|as|for)\b))",
    # or is not as it should be.
    r"(?<!you )\b(?:there (?:is|was|are|were|has been|have been|seems to be|appears to be)|had|have|having|has|ran into"
    r"|run into|running into|hit|encountered|encountering|experienced|experiencing|facing|got|getting|received|returned"
    r"|returns|reported|reports|due to|because of|owing to|caused by)"
    rf" (?:(?!(?:no|not|never|any|without|zero|nor|if|to)\b)[\w'-]+ ){{0,3}}{_FLAW}\b",
    rf"\b{_FLAW} (?:(?:has|have|just) )*(?:occurred|happened|came up|arose|prevents|prevented|keeps|kept)\b",
    r"\bplease try (?:(?:it|that|this) )?again (?:later|shortly|in an?|in some)\b",
)
_HINTS = (
    r"\bunable\b|\b(?:can|could) not\b|\bnot (?:available|possible|able|through)\b|\bunavailable\b|\bunreachable\b"
    r"|\bis down\b|\bout of (?:order|service)\b|\bfail(?:s|ed|ing)?\b|\b(?:go|goes|gone|going|went) wrong\b"
    r"|\bunfortunately\b|\btry again\b",
    rf"\b{_FLAW}\b",
)

_NOTHING = re.compile("|".join(_DENIED))
_MERELY_SUPPOSED = re.compile("|".join(_SUPPOSED))
_TELLS = re.compile("|".join(_STATED))
_MAY_TELL = re.compile("|".join([*_STATED, *_HINTS]))
_SENTENCE = re.compile(r"[^.!?…;:\n–—]+[.!?…]*")
_LONG_FORMS = (
    ("’", "'"),
    ("cannot", "can not"),
    ("can't", "can not"),
    ("won't", "will not"),
    ("n't", " not"),
    ("'ve ", " have "),
    ("there's", "there is"),
    ("it's", "it is"),
    ("that's", "that is"),
    (" - ", "–"),
)


def confesses(text: str) -> bool | None:
    """Tell whether a text says that something did not work; None when it may, and may not."""
    text = re.sub(r"[^\S\n]+", " ", text.lower())
    for short, long in _LONG_FORMS:
        text = text.replace(short, long)
    found = {_weigh(sentence.strip()) for sentence in _SENTENCE.findall(text)}
    return True if True in found else None if None in found else False


def _weigh(sentence: str) -> bool | None:
    left = _MERELY_SUPPOSED.sub(" ", _NOTHING.sub(" ", sentence))
    # Only what comes before a question is stated.
    stated = left.rpartition(",")[0] if sentence.endswith("?") else left
    doubtful = _OPENS_SUPPOSING.match(sentence) or _MENDED.search(sentence)
    if not doubtful and _TELLS.search(stated):
        return True
    return None if _MAY_TELL.search(left) else False
