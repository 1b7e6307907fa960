package retry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/auditrelay/auditrelay/internal/retry"
)

func TestALastingFailureIsToldAtGrowingIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f retry.Failure
		var told []time.Duration
		for start := time.Now(); time.Since(start) < 5*time.Hour; time.Sleep(30 * time.Second) {
			if f.Again("connection refused") {
				told = append(told, time.Since(start))
			}
		}
		assert.Equal(t, []time.Duration{
			0, time.Minute, 4 * time.Minute, 13 * time.Minute, 40 * time.Minute,
			100 * time.Minute, 160 * time.Minute, 220 * time.Minute, 280 * time.Minute,
		}, told)
		assert.Equal(t, []any{"failing_for", 5 * time.Hour}, f.Fields())
		fields, was := f.Over()
		assert.True(t, was)
		assert.Equal(t, []any{"after", 5 * time.Hour}, fields)
		assert.True(t, f.Again("connection refused"), "a new failure is told at once")
	})
}

func TestANewReasonIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f retry.Failure
		assert.True(t, f.Again("refused"))
		assert.Empty(t, f.Fields())
		time.Sleep(11 * time.Second)
		assert.False(t, f.Again("refused"))
		assert.True(t, f.Again("denied"))
		assert.Equal(t, []any{"failing_for", 11 * time.Second}, f.Fields())
	})
}

// A text with a port number differs at each attempt.
func TestManyReasonsAreNoFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f retry.Failure
		told := 0
		for i := range 600 {
			if f.Again("from port " + strconv.Itoa(i)) {
				told++
			}
			time.Sleep(100 * time.Millisecond)
		}
		assert.LessOrEqual(t, told, 7)
		assert.Greater(t, told, 1)
	})
}

func TestReasonsThatDifferByANumberAreToldAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f retry.Failure
		var log bytes.Buffer
		for i := range 60 {
			err := fmt.Errorf("read tcp 127.0.0.1:%d->192.0.2.1:443: connection reset by peer", 40_000+i)
			f.Tell(slog.New(slog.NewTextHandler(&log, nil)), err, "it fails", "it is over")
			time.Sleep(time.Minute)
		}
		assert.Equal(t, 5, strings.Count(log.String(), "it fails"), "after 0, 1, 4, 13 and 40 minutes")
		assert.Contains(t, log.String(), "127.0.0.1:40040->", "each line has its own reason")
	})
}

func TestNoFailureIsNotOver(t *testing.T) {
	var f retry.Failure
	_, was := f.Over()
	assert.False(t, was)
	assert.False(t, f.Lasts())
	assert.Zero(t, f.Due())
}
