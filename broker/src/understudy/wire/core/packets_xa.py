"""Packets of distributed (XA) transactions (artemis-core s. 4.5)."""

from __future__ import annotations

from typing import ClassVar

from understudy.dataclass import dataclass
from understudy.errors import XaCode
from understudy.wire.core.layout import I32, Flag, Packet, TextOrNull, XidField, Xids


@dataclass(slots=True)
class XaStart(Packet):
    TYPE: ClassVar[int] = 51
    xid: XidField


@dataclass(slots=True)
class XaEnd(Packet):
    TYPE: ClassVar[int] = 52
    xid: XidField
    failed: Flag = False
    """Whether the branch ended with TMFAIL."""


@dataclass(slots=True)
class XaCommit(Packet):
    TYPE: ClassVar[int] = 53
    xid: XidField
    one_phase: Flag = False


@dataclass(slots=True)
class XaPrepare(Packet):
    TYPE: ClassVar[int] = 54
    xid: XidField


@dataclass(slots=True)
class XaResponse(Packet):
    """Answer to all but the queries."""

    TYPE: ClassVar[int] = 55
    error: Flag
    response_code: I32 = XaCode.OK
    message: TextOrNull = None


@dataclass(slots=True)
class XaRollback(Packet):
    TYPE: ClassVar[int] = 56
    xid: XidField


@dataclass(slots=True)
class XaJoin(Packet):
    TYPE: ClassVar[int] = 57
    xid: XidField


@dataclass(slots=True)
class XaSuspend(Packet):
    TYPE: ClassVar[int] = 58


@dataclass(slots=True)
class XaResume(Packet):
    TYPE: ClassVar[int] = 59
    xid: XidField


@dataclass(slots=True)
class XaForget(Packet):
    TYPE: ClassVar[int] = 60
    xid: XidField


@dataclass(slots=True)
class XaFailed(Packet):
    """Marks a branch after a failover; not answered."""

    TYPE: ClassVar[int] = 39
    xid: XidField


@dataclass(slots=True)
class XaInDoubt(Packet):
    """Asks for the prepared branches."""

    TYPE: ClassVar[int] = 61


@dataclass(slots=True)
class XaInDoubtResponse(Packet):
    TYPE: ClassVar[int] = 62
    xids: Xids = ()


@dataclass(slots=True)
class XaSetTimeout(Packet):
    TYPE: ClassVar[int] = 63
    timeout_s: I32


@dataclass(slots=True)
class XaSetTimeoutResponse(Packet):
    TYPE: ClassVar[int] = 64
    ok: Flag


@dataclass(slots=True)
class XaGetTimeout(Packet):
    TYPE: ClassVar[int] = 65


@dataclass(slots=True)
class XaGetTimeoutResponse(Packet):
    TYPE: ClassVar[int] = 66
    timeout_s: I32
