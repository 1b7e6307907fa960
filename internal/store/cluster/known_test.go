package cluster

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/store"
)

// A position that is or may have been another record's is noticed, at an append and at a
// read; answers that come in another order are not taken for that.
func TestAPositionThatIsGivenOutAgainIsNoticed(t *testing.T) {
	t.Parallel()
	var k known
	k.begin(spot{10, 100}, ^store.Pos(0), 10)
	fits := func(s spot, appended bool) bool {
		_, fits := k.see(s, appended)
		return fits
	}
	assert.False(t, fits(spot{7, 70}, true), "the log was longer when it was opened")
	assert.True(t, fits(spot{7, 70}, false))
	assert.False(t, fits(spot{10, 101}, false), "the note knows another one")
	k.settle()
	assert.True(t, fits(spot{12, 120}, true))
	assert.True(t, fits(spot{11, 110}, true), "its answer came later")
	assert.True(t, fits(spot{12, 120}, false))
	assert.False(t, fits(spot{12, 121}, true))
	_, doubted := k.suspects()
	assert.Equal(t, spot{12, 120}, doubted)
	k.settle()
	assert.True(t, fits(spot{13 + ringSize, 5}, true))
	assert.False(t, fits(spot{13, 6}, true), "it is far too old to be new")
}
