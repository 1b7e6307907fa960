package verify

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/trail/audit"
)

// Who trusts the first key follows a rotation to the second. A key that no proven entry
// names is not followed, and neither is the old one after a rotation.
func TestARotatedKeyIsFollowed(t *testing.T) {
	t.Parallel()
	named := renamedKey(t, "the second secret", "example.com/log")
	verified := func(alter bool, secrets ...string) []string {
		logs := []*testLog{newTestLog(t, "example.com/log", 0)}
		logs[0].add(t, records(0, 5)...)
		logs[0].add(t, entryOf(t, audit.TypeRotated, map[string]string{"key": named.verifier}))
		logs[0].sign(t)
		f := files{}
		add := func(n int, l *testLog) Log {
			for name, data := range l.write(t) {
				f[fmt.Sprintf("%d/%s", n, name)] = data
			}
			return check(t, l.files, Options{}).Logs[0]
		}
		before := add(0, logs[0])
		for i, secret := range secrets {
			base := before.Base + before.Size
			l := newTestLog(t, fmt.Sprintf("example.com/log/from-%d", base), base)
			l.key, l.seq = renamedKey(t, secret, fmt.Sprintf("example.com/log/from-%d", base)), i+1
			previous := audit.Generation{Base: before.Base, Origin: before.Origin, Size: before.Size, Root: before.Root}
			l.add(t, entryOf(t, audit.TypeGeneration, map[string]any{"previous": previous}), record(1))
			l.sign(t)
			before = add(i+1, l)
			before.Base = base
		}
		if alter {
			delete(f, "0/checkpoint")
			delete(f, "0/checkpoints")
		}
		dirs := []string{"0", "1", "2"}[:1+len(secrets)]
		r, err := Trail(t.Context(), f.fetch, dirs, Options{Policy: policy(t, 0, logs[0].key.verifier)})
		require.NoError(t, err)
		return texts(r.Integrity)
	}
	assert.Empty(t, verified(false, "the second secret"))
	assert.Empty(t, verified(false, "the second secret", "the second secret"))
	assert.Empty(t, verified(false, "example.com/log", "example.com/log"), "named, and not used yet")
	assert.NotEmpty(t, verified(false, "another secret"))
	assert.NotEmpty(t, verified(false, "the second secret", "example.com/log"), "the old key is of the past")
	assert.NotEmpty(t, verified(true, "the second secret"), "nothing proves the naming entry")
}

// A sink's copy is followed over a rotation in the same way.
func TestARotatedKeyIsFollowedInACopy(t *testing.T) {
	t.Parallel()
	named := renamedKey(t, "the second secret", "example.com/log")
	verified := func(signed bool, secrets ...string) (integrity, completeness []string) {
		first := newTestLog(t, "example.com/log", 0)
		all := append(records(0, 5), entryOf(t, audit.TypeRotated, map[string]string{"key": named.verifier}))
		first.add(t, all...)
		bodies := eventsOf(t, first, all)
		if signed {
			bodies = append(bodies, checkpointBody(t, first.checkpoint(t, 6)))
		}
		for i, body := range bodies {
			bodies[i] = cloudEvent(deliveredBody(t, first, body))
		}
		for i, secret := range secrets {
			base := int64(6 + 3*i)
			l := newTestLog(t, fmt.Sprintf("example.com/log/from-%d", base), base)
			l.key = renamedKey(t, secret, fmt.Sprintf("example.com/log/from-%d", base))
			more := records(int(base), int(base)+3)
			l.add(t, more...)
			for _, body := range append(eventsOf(t, l, more), checkpointBody(t, l.checkpoint(t, 3))) {
				bodies = append(bodies, cloudEvent(deliveredBody(t, l, body)))
			}
		}
		r := checkEvents(t, Options{Policy: policy(t, 0, first.key.verifier)}, bodies...)
		return texts(r.Integrity), texts(r.Completeness)
	}
	for _, secrets := range [][]string{{"the second secret"}, {"the second secret", "the second secret"}, {"example.com/log", "the second secret"}} {
		integrity, completeness := verified(true, secrets...)
		assert.Empty(t, append(integrity, completeness...), "%v", secrets)
	}
	for _, secrets := range [][]string{{"another secret"}, {"the second secret", "example.com/log"}} { // the old key is of the past
		integrity, _ := verified(true, secrets...)
		assert.NotEmpty(t, integrity, "%v", secrets)
	}
	integrity, _ := verified(false, "the second secret")
	assert.NotEmpty(t, integrity, "nothing proves the naming entry")
}
