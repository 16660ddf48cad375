"""The partition that Kafka's clients choose for one key, from the definition of murmur2."""


def murmur2(key: bytes) -> int:
    """The hash, byte by byte; unsigned."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    hashed = 0x9747B28C ^ len(key)
    words, rest = divmod(len(key), 4)
    for index in range(words):
        word = sum(key[4 * index + byte] << (8 * byte) for byte in range(4))
        word = (word * m) & mask
        word = ((word ^ (word >> 24)) * m) & mask
        hashed = ((hashed * m) & mask) ^ word
    if rest:
        for byte in range(rest):
            hashed ^= key[4 * words + byte] << (8 * byte)
        hashed = (hashed * m) & mask
    hashed = ((hashed ^ (hashed >> 13)) * m) & mask
    return hashed ^ (hashed >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of a serialized key."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
