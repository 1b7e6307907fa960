package health

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAnHourOfMinutes(t *testing.T) {
	t.Parallel()
	var h hour
	assert.Empty(t, h.whole())
	h.note(0, 1000) // of an earlier watch
	h.note(59*time.Second, 1007)
	assert.Empty(t, h.whole(), "the first minute is not over")
	h.note(time.Minute, 1009)
	h.note(3*time.Minute, 1010)
	assert.Equal(t, []int64{7, 2, 0}, h.whole())

	for m := 4; m <= 200; m++ {
		h.note(time.Duration(m)*time.Minute, 1010+int64(m-3))
	}
	list := h.whole()
	assert.Len(t, list, 60)
	for _, n := range list {
		assert.EqualValues(t, 1, n)
	}
	h.note(30*time.Hour, 2000)
	for _, n := range h.whole() {
		assert.Zero(t, n, "a minute without a look has kept what was there before")
	}
}
