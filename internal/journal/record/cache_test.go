package record

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/relay/relaytest"
)

func TestACacheIsBoundedAndDecodesOnce(t *testing.T) {
	t.Parallel()
	c := NewCache(1000)
	rec := Append(nil, batchOf(relaytest.Events(3)).Bytes(), 3)
	first, fresh := c.Decode(1, rec)
	require.NoError(t, first.Err)
	require.Len(t, first.Events, 3)
	assert.True(t, fresh)
	again, fresh := c.Decode(1, rec)
	assert.Same(t, first, again)
	assert.False(t, fresh)
	other, _ := c.Decode(1, Append(nil, batchOf(relaytest.Events(1, relaytest.From(9))).Bytes(), 1))
	require.NoError(t, other.Err)
	assert.Len(t, other.Events, 1, "the number was given to another record")
	for pos := range uint64(10 * cachedRecords) {
		_, _ = c.Decode(pos, Append(nil, batchOf(relaytest.Events(1)).Bytes(), 1))
	}
	assert.Len(t, c.records, cachedRecords)
	again, _ = c.Decode(1, rec)
	assert.NotSame(t, first, again, "it was dropped, and is decoded again")
	large := batchOf(relaytest.Events(100, relaytest.BodyBytes(30<<10)))
	for seq := range uint64(10) {
		d, _ := c.Decode(seq, Append(nil, large.Bytes(), 100))
		require.Greater(t, d.Size, 3_000_000)
		require.False(t, d.Large)
	}
	assert.Len(t, c.records, 5, "of 3 MB each")
	assert.Equal(t, 5, c.bytes/3_000_000)
}

func TestACacheKeepsNoRecordThatAllHaveRead(t *testing.T) {
	t.Parallel()
	c := NewCache(2)
	rec := Append(nil, batchOf(relaytest.Events(3)).Bytes(), 3)
	first, _ := c.Decode(1, rec)
	assert.Len(t, c.records, 1, "one source has not read it")
	assert.Equal(t, first.Size, c.bytes)
	second, fresh := c.Decode(1, rec)
	assert.Same(t, first, second)
	assert.False(t, fresh)
	assert.Empty(t, c.records)
	assert.Zero(t, c.bytes)
	third, fresh := c.Decode(1, rec)
	assert.NotSame(t, first, third)
	assert.True(t, fresh, "it is offered again, as after a lost acknowledgement")

	alone := NewCache(1)
	d, _ := alone.Decode(1, rec)
	assert.Len(t, d.Events, 3)
	assert.Empty(t, alone.records)
	assert.Zero(t, alone.bytes)
}

// Sources that keep up get the events as they were made, and others read them from the disk.
func TestACacheHasWhatWasJustMade(t *testing.T) {
	t.Parallel()
	c := NewCache(1)
	raw := batchOf(relaytest.Events(3)).Bytes()
	rec := Append(nil, raw, 3)
	_, _ = c.Decode(100, Append(nil, raw, 3))
	made := Content(raw, 3)
	c.Keep(100+cachedRecords-1, rec, made)
	assert.Equal(t, made.Size, c.bytes)
	got, fresh := c.Decode(100+cachedRecords, rec)
	assert.Same(t, made, got)
	assert.False(t, fresh)
	assert.Equal(t, relaytest.Events(3)[2].ID, got.Events[2].ID)
	assert.Zero(t, c.bytes)

	c.Keep(100+2*cachedRecords, rec, made)
	assert.Empty(t, c.records, "even the fastest source is far away")
	for range 2 * cachedRecords {
		c.Keep(100, Append(nil, raw, 3), Content(raw, 3))
	}
	assert.Len(t, c.records, cachedRecords)
	assert.Equal(t, cachedRecords*made.Size, c.bytes)
}
