package disk

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Each part of a header stands where it stood in every release.
func TestTheFormOfAHeader(t *testing.T) {
	t.Parallel()
	s := &Store{cfg: Config{Writer: "v1.2.3"}}
	h := s.newHeader("trail.entries")
	h.Log, h.Secret = [16]byte{1, 2}, [16]byte{3, 4}
	h.Base, h.Before, h.BeforeEnd, h.Made, h.Doubtful = 5, 6, 7, 8, 9
	want := make([]byte, dataStart)
	copy(want, "arsegmnt")
	want[8] = 1
	copy(want[16:], []byte{1, 2})
	for at, n := range map[int]byte{32: 5, 40: 6, 48: 7, 56: 8, 144: 9} {
		want[at] = n
	}
	copy(want[64:], []byte{3, 4})
	copy(want[80:], "v1.2.3")
	copy(want[152:], "trail.entries")
	binary.LittleEndian.PutUint64(want[504:], sum(0, want[:504]))
	copy(want[4096:], want[:512])
	assert.Equal(t, want, h.encode())

	f := newMemFS(1)
	f.set("/h", want)
	opened, err := f.Open("/h", toWrite)
	require.NoError(t, err)
	read, bad, err := readHeader(opened, "/h")
	require.NoError(t, err)
	assert.EqualValues(t, -1, bad)
	assert.Equal(t, want, read.encode())
	assert.Equal(t, []store.Pos{5, 6, 9}, []store.Pos{read.Base, read.Before, read.Doubtful})
	assert.True(t, read.of("trail.entries"))
	assert.False(t, read.of("trail"))
}
