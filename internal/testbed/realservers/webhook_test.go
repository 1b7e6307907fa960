package realservers

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAWebhookIsTakenOnlyWhereItIsSigned(t *testing.T) {
	t.Parallel()
	w, err := StartWebhook(t.Context())
	require.NoError(t, err)
	defer w.Close()
	const batch = `[{"specversion":"1.0","id":"a","data":{}},{"specversion":"1.0","id":"b"}]`
	post := func(contentType, signed, body string) int {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(w.Secret, "whsec_"))
		require.NoError(t, err)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte("msg_1.1700000000." + signed))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.URL, bytes.NewBufferString(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("webhook-id", "msg_1")
		req.Header.Set("webhook-timestamp", "1700000000")
		req.Header.Set("webhook-signature", "v1,old v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		return res.StatusCode
	}
	const contentType = "application/cloudevents-batch+json"
	assert.Equal(t, http.StatusNoContent, post(contentType, batch, batch))
	assert.Equal(t, http.StatusNoContent, post(contentType+"; charset=utf-8", batch, batch))
	assert.Equal(t, map[string]int{"a": 2, "b": 2}, w.IDs())
	assert.Empty(t, w.Faults())

	assert.Equal(t, http.StatusBadRequest, post(contentType, batch, batch+" "), "changed")
	assert.Equal(t, http.StatusBadRequest, post("application/json", batch, batch), "another type")
	assert.Equal(t, http.StatusBadRequest, post(contentType, `[{"id":"c"}]`, `[{"id":"c"}]`), "no CloudEvent")
	assert.Equal(t, http.StatusBadRequest, post(contentType, `{`, `{`), "no JSON")
	assert.Len(t, w.Faults(), 4)
	assert.Equal(t, map[string]int{"a": 2, "b": 2}, w.IDs())
}
