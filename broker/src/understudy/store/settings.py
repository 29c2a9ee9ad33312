"""Settings of a store, given at its activation; the elements of broker.xml are in brackets."""

from __future__ import annotations

from typing import Final

from understudy.dataclass import dataclass
from understudy.limits import ID_CACHE_SIZE
from understudy.store.log.batch import Sync
from understudy.store.log.segment import SEGMENT_BYTES
from understudy.store.log.segment_pool import PoolSettings
from understudy.store.retention import RetentionSettings

_RUN_MESSAGE_BYTES_MAX: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Settings of the store (broker.xml element in brackets)."""

    segment_bytes: int = SEGMENT_BYTES
    """Size of a segment (journal-file-size)."""
    id_cache_size: int = ID_CACHE_SIZE
    """Duplicate ids kept per address (id-cache-size)."""
    ahead: int = 1
    """Segments prepared ahead (journal-min-files, the one in use left out)."""
    sync: Sync = Sync.ALWAYS
    """When a batch is synced (journal-datasync, journal-sync-transactional and -non-transactional)."""
    pool: PoolSettings = PoolSettings()
    """Files of removed segments that are kept for later ones (journal-pool-files)."""
    retention: RetentionSettings | None = None
    """Directory for segments that leave the log (journal-retention-directory)."""
    disk_usage_percent_max: int = 90
    """Percentage of used disk space above which messages are refused (max-disk-usage); -1 or 100 for never."""
    disk_free_bytes_min: int = -1
    """Free bytes of the disk below which messages are refused (min-disk-free); -1 for never."""
    compact_segments_min: int = 10
    """Segments between snapshots, and before messages are copied (journal-compact-min-files); 0 for never."""
    delivery_count_max: int = 10
    """Delivery count above which further counts are not stored (max-redelivery-records); -1 stores all."""
    count_before_delivery: bool = False
    """Store the count of a delivery before it is sent (persist-delivery-count-before-delivery)."""
    compact_percent: int = 30
    """Live share of a segment below which its messages are copied (journal-compact-percentage); 0 for never."""

    @property
    def run_message_bytes_max(self) -> int:
        """Length of the longest message that is recorded in a run. Longer ones, and those of more than a quarter of a
        segment, are recorded alone: the store asks whether there is space for a segment of their own. Clients send
        bodies longer than 100 KiB as large messages. Bytes.
        """
        return min(_RUN_MESSAGE_BYTES_MAX, self.segment_bytes // 4)
