package webhook

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
)

const tolerance = 5 * time.Minute

// signed is the example of Standard Webhooks' own test suites.
func signed() (http.Header, []byte, time.Time) {
	h := http.Header{}
	h.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
	h.Set("webhook-timestamp", "1614265330")
	h.Set("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	return h, []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0)
}

func TestVerifyTakesTheDocumentsExample(t *testing.T) {
	t.Parallel()
	h, body, now := signed()
	require.NoError(t, Verify(h, body, secret.New(key), tolerance, now))
	for _, off := range []time.Duration{-tolerance, tolerance, -time.Second} {
		require.NoError(t, Verify(h, body, secret.New(key), tolerance, now.Add(off)))
	}
	h.Set("webhook-signature", "v2,AAAA v1a,x v1,AAAA "+h.Get("webhook-signature")+" v1,")
	require.NoError(t, Verify(h, body, secret.New(key), tolerance, now), "one of several, as while a secret is replaced")
}

func TestVerifyRefusesWhatWasChanged(t *testing.T) {
	t.Parallel()
	h, body, now := signed()
	refused := func(h http.Header, body []byte, key string, now time.Time, want error) {
		t.Helper()
		require.ErrorIs(t, Verify(h, body, secret.New(key), tolerance, now), want)
	}
	for i := range body {
		for bit := range 8 {
			changed := bytes.Clone(body)
			changed[i] ^= 1 << bit
			refused(h, changed, key, now, ErrSignature)
		}
	}
	refused(h, body[:len(body)-1], key, now, ErrSignature)
	refused(h, append(bytes.Clone(body), ' '), key, now, ErrSignature)
	refused(h, nil, key, now, ErrSignature)
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		value := h.Get(name)
		for i := range value {
			for bit := range 8 {
				changed := []byte(value)
				changed[i] ^= 1 << bit
				h.Set(name, string(changed))
				refused(h, body, key, now, ErrSignature)
			}
		}
		for _, other := range []string{"", value + "x", value[1:], "+" + value, strings.ToUpper(value)} {
			if other != value {
				h.Set(name, other)
				refused(h, body, key, now, ErrSignature)
			}
		}
		h.Set(name, value)
	}
	for _, other := range []string{"x", "whsec_AAAA", key + "BBBB", strings.TrimPrefix(key, "whsec_")} {
		refused(h, body, other, now, ErrSignature)
	}
	require.ErrorContains(t, Verify(h, body, secret.Text{}, tolerance, now), "secret is empty")
	unkeyed := h.Clone()
	unkeyed.Set("webhook-signature", sign(nil, h.Get("webhook-id"), h.Get("webhook-timestamp"), body))
	for _, empty := range []string{"", "whsec_"} {
		require.Error(t, Verify(unkeyed, body, secret.New(empty), tolerance, now), "an empty key signs for anybody")
	}
	require.Error(t, Verify(h, body, secret.New("whsec_!"), tolerance, now))
	require.NoError(t, Verify(h, body, secret.New(key), tolerance, now), "what was not changed")
}

func TestVerifyRefusesOldAndFutureRequests(t *testing.T) {
	t.Parallel()
	h, body, now := signed()
	for _, off := range []time.Duration{tolerance + 1, -tolerance - 1, 24 * time.Hour, 1 << 62, -1 << 62} {
		require.ErrorIs(t, Verify(h, body, secret.New(key), tolerance, now.Add(off)), ErrTimestamp)
	}
	for _, timestamp := range []string{"", "soon", "1e9", "9223372036854775807", "-9223372036854775808", "99999999999999999999"} {
		h.Set("webhook-timestamp", timestamp)
		h.Set("webhook-signature", sign(mustKey(t), h.Get("webhook-id"), timestamp, body))
		require.ErrorIs(t, Verify(h, body, secret.New(key), tolerance, now), ErrTimestamp, timestamp)
	}
}

// If an id contained a dot, a part of it could be taken for the timestamp.
func TestVerifyRefusesAnIDWithADot(t *testing.T) {
	t.Parallel()
	h, _, now := signed()
	timestamp := strconv.FormatInt(now.Unix(), 10)
	h.Set("webhook-id", "a.1")
	h.Set("webhook-signature", sign(mustKey(t), "a.1", timestamp, nil))
	require.ErrorIs(t, Verify(h, nil, secret.New(key), tolerance, now), ErrSignature)
}

func mustKey(t *testing.T) []byte {
	t.Helper()
	raw, err := keyOf(secret.New(key))
	require.NoError(t, err)
	require.Len(t, raw, 24)
	return raw
}

func FuzzVerify(f *testing.F) {
	h, body, _ := signed()
	f.Add(h.Get("webhook-id"), h.Get("webhook-timestamp"), h.Get("webhook-signature"), body, key)
	f.Add("", "", "", []byte(nil), "")
	f.Add("a.b", "-1", "v1, v1,", []byte("[]"), "whsec_")
	f.Fuzz(func(t *testing.T, id, timestamp, signature string, body []byte, key string) {
		_, _, now := signed()
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {signature}}
		_ = Verify(h, body, secret.New(key), tolerance, now)
		if Verify(h, body, secret.New("a key that nobody knows"), tolerance, now) == nil {
			t.Fatal("verified without the key")
		}
	})
}
