package app

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/store"
)

// bounded is a store on a disk that has a quota.
type bounded struct {
	store.Store
	full error
}

func (b *bounded) Full() error { return b.full }

// A quota refuses what the free room of the disk would allow, and looks like a full disk.
func TestASpentQuotaIsNoRoom(t *testing.T) {
	t.Parallel()
	s := &bounded{}
	r := &process{store: s}
	r.apply(&config.Config{DataDir: t.TempDir()})
	assert.Positive(t, testutil.ToFloat64(r.diskFree()))
	s.full = unix.EDQUOT
	assert.Zero(t, testutil.ToFloat64(r.diskFree()))
	remark, err := r.diskRemark(t.Context())
	require.NoError(t, err)
	assert.Contains(t, remark, "warning: the disk of "+r.cfg().DataDir+" has 0")
}
