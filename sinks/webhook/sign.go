package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/config/secret"
)

// The headers of Standard Webhooks 1.0.0.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

var (
	// ErrSignature means that a request was signed with another secret, or was changed since.
	ErrSignature = errors.New("the request's signature is not valid")
	// ErrTimestamp means that a request was signed too long ago, or by a clock ahead of ours.
	// It may be a replay of an old one.
	ErrTimestamp = errors.New("the request's timestamp is outside the tolerance")
)

// Verify checks a request's signature with key, and that its time differs from now by at most
// tolerance, for which 5 minutes are usual. body is the whole body as received; bound it before
// you read it. An error is or wraps [ErrSignature] or [ErrTimestamp], or is another one if key
// is not usable as a secret.
//
// Verify implements the symmetric scheme (v1) of Standard Webhooks 1.0.0. key has its form,
// whsec_ and base64, or else consists of the key's own bytes. The comparison takes constant
// time. After Verify has succeeded, the header webhook-id is authentic, and may be used to
// recognise a redelivery.
func Verify(header http.Header, body []byte, key secret.Text, tolerance time.Duration, now time.Time) error {
	raw, err := keyOf(key)
	if err != nil {
		return err
	}
	if raw == nil {
		return errors.New("verify a request: the secret is empty")
	}
	id, timestamp := header.Get(headerID), header.Get(headerTimestamp)
	// If it contained a ".", an id could swallow the signed timestamp.
	if id == "" || strings.Contains(id, ".") {
		return fmt.Errorf("%w: the header webhook-id is missing, or holds a dot", ErrSignature)
	}
	want := []byte(sign(raw, id, timestamp, body))
	matches := false
	for given := range strings.FieldsSeq(header.Get(headerSignature)) {
		matches = hmac.Equal([]byte(given), want) || matches
	}
	if !matches {
		return ErrSignature
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: it is not a number of seconds", ErrTimestamp)
	}
	if age := now.Sub(time.Unix(seconds, 0)); age > tolerance || age < -tolerance {
		return fmt.Errorf("%w: it is %v old", ErrTimestamp, age)
	}
	return nil
}

// sign returns one signature in the form that it has in the header.
func sign(key []byte, id, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	_, _ = mac.Write([]byte(id + "." + timestamp + "."))
	_, _ = mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// keyOf returns the key of a signature; nil without a secret.
func keyOf(s secret.Text) ([]byte, error) {
	if s.Empty() {
		return nil, nil
	}
	encoded, standard := strings.CutPrefix(s.Reveal(), "whsec_")
	if !standard {
		return []byte(s.Reveal()), nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(key) == 0 {
		return nil, errors.New("secret: the text after whsec_ is not base64") // err would show some of it
	}
	return key, nil
}
