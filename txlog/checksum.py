"""CRC-32 of stored bytes.

`crc32_of` is zlib's, or ISA-L's where `isal` is installed (extra `fast`): the same values in a
thirteenth of the processor time for 1 MiB, in a third for 300 bytes.
"""

try:
    from isal.isal_zlib import crc32 as crc32_of
except ImportError:
    from zlib import crc32 as crc32_of

__all__ = ["crc32_of"]
