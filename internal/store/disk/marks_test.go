package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/store"
)

// Whichever slot a mark was written to last gives its value, and if that slot is damaged, the
// other one gives the value before.
func TestAMarkGivesItsNewestValue(t *testing.T) {
	t.Parallel()
	for writes := 1; writes <= 4; writes++ {
		for _, damaged := range []bool{false, true} {
			fs := newMemFS(1)
			s := &Store{fs: fs, log: discard}
			mark, err := openSlots(s, "/mark", "test")
			require.NoError(t, err)
			for i := range writes {
				_, err := mark.write(markKey, fmt.Append(nil, i+1))
				require.NoError(t, errors.Join(err, mark.sync()))
			}
			want := writes
			if damaged {
				want--
				fs.names["/mark"].cache[mark.at(0, mark.values[markKey].number)+5] ^= 1
			}
			again, err := openSlots(s, "/mark", "test")
			require.NoError(t, err)
			value := again.value()
			assert.Equal(t, damaged, again.damaged)
			if want == 0 {
				assert.Nil(t, value)
			} else {
				assert.Equal(t, fmt.Sprint(want), string(value))
			}
			_, err = again.write(markKey, []byte("next"))
			require.NoError(t, errors.Join(err, again.sync()))
			again, err = openSlots(s, "/mark", "test")
			require.NoError(t, err)
			assert.Equal(t, "next", string(again.value()))
		}
	}
}

// A log keeps its id and its segment after a power cut, from the moment when it was opened.
func TestANewLogIsDurable(t *testing.T) {
	t.Parallel()
	m := newModel(t, 1)
	before, err := m.log.State(t.Context())
	require.NoError(t, err)
	m.leave()
	for _, n := range m.fs.names { // no page that was not synced is lucky
		clear(n.dirty)
	}
	m.fs.cutPower()
	m.boot[0]++
	m.open()
	after, err := m.log.State(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before.ID, after.ID)
	assert.Empty(t, m.fs.files("/salvage"), "nothing had to be moved aside")
	m.leave()
}

// The write that a kill tore is cut, however long it is: none of it stands after the records
// that follow, where a start after a power cut would have to name it.
func TestATornWriteIsCutAfterAKill(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2} { // without and with rooms that are allocated
		m := newModel(t, seed)
		m.append()
		l := m.log.(*Log)
		m.leave()
		n := m.fs.names[l.path(1)]
		n.cache = append(n.cache[:l.offset:l.offset], bytes.Repeat([]byte("torn"), 5000)...)
		m.open()
		_, err := m.log.Append(context.Background(), store.Draft{Data: []byte("short")})
		require.NoError(t, err)
		m.leave()
		m.boot[0]++
		m.open()
		records, gaps := read(t, m.log)
		assert.Empty(t, gaps)
		assert.Len(t, records, len(m.acked)+1)
		m.leave()
	}
}

// The loss of a page costs a lazy value its newest write at most.
func TestALostPageCostsOneLazyWrite(t *testing.T) {
	t.Parallel()
	for page := int64(dataStart); page < dataStart+2*pageSize; page += pageSize {
		m := newModel(t, 1)
		for i := range 4 {
			require.NoError(t, m.store.table.PutLazy(t.Context(), "k", fmt.Append(nil, i), store.If{}))
		}
		m.leave()
		b := m.fs.names["/s/lazy"].cache
		clear(b[page:min(len(b), int(page)+pageSize)])
		m.open()
		v, err := m.store.table.Get(t.Context(), "k")
		require.NoError(t, err)
		assert.Contains(t, []string{"2", "3"}, string(v.Data))
		m.leave()
	}
}
