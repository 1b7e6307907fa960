package ingest

import (
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
)

// The refusal of an environment that was taken out of the configuration names it: to the
// sender, in the log, and in the metrics.
func TestAPushOfAFormerEnvironmentIsNamed(t *testing.T) {
	t.Parallel()
	r := start(t)
	h := asJSON.with("Authorization", "Basic Zm9ybWVyOmNvcnJlY3QgaG9yc2U=")
	for range 2 {
		a := r.send(t, http.MethodPost, "/loki/api/v1/push", h, []byte(good))
		assert.Equal(t, http.StatusUnauthorized, a.status)
		assert.Contains(t, a.body, "not in the relay's configuration")
	}
	assert.Equal(t, http.StatusForbidden, r.send(t, http.MethodPost, "/api/v2/logs", h, []byte(good)).status)
	assert.EqualValues(t, 3, testutil.ToFloat64(r.handler.metrics.unauthorized.WithLabelValues(goneEnv.Project, goneEnv.Environment, "not_configured")))
	assert.Regexp(t, `push refused.*project=acme environment=gone reason=not_configured.*put it back under environments`, r.log.String())
	assert.Zero(t, r.journal.taken())
	wrong := r.send(t, http.MethodPost, "/loki/api/v1/push", asJSON.with("Authorization", "Basic Zm9ybWVyOng="), []byte(good))
	assert.NotContains(t, wrong.body, "configuration", "a stranger is not told what the relay knows")
}
