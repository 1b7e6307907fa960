package webhook

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/relay"
)

// ContentType is the media type of a request's body, where the configuration's
// headers name no other.
const ContentType = cloudevents.BatchMediaType

func (s *Sink) request(ctx context.Context, events []relay.Event, now time.Time) (*http.Request, error) {
	// The body is not kept from one delivery to the next, because the transport may still read
	// from it after an early answer.
	body, err := s.encode(events)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", s.client.Clean(err))
	}
	req.Header = s.headers.Clone()
	id, timestamp := batchID(events), strconv.FormatInt(now.Unix(), 10)
	req.Header.Set(headerID, id)
	req.Header.Set(headerTimestamp, timestamp)
	if s.key != nil {
		req.Header.Set(headerSignature, sign(s.key, id, timestamp, body))
	}
	return req, nil
}

// forms are the forms of a request's body, by format.
var forms = map[string]struct {
	contentType string
	encode      func(events []relay.Event) ([]byte, error)
}{
	config.FormatCloudEvents: {ContentType, batchOf},
	config.FormatOCSF:        {"application/x-ndjson", linesOf},
	config.FormatSlack:       {"application/json", messageOf},
}

func headersOf(configured map[string]secret.Text, contentType string) http.Header {
	h := http.Header{}
	h.Set("Content-Type", contentType)
	for name, value := range configured {
		h.Set(name, value.Reveal())
	}
	return h
}

func batchOf(events []relay.Event) ([]byte, error) {
	var b cloudevents.Batch
	for i := range events {
		b.Add(&events[i], math.MaxInt)
	}
	return b.Text(), nil
}

// linesOf returns the events' bodies, JSON objects without line ends, each on a line.
func linesOf(events []relay.Event) (lines []byte, _ error) {
	for i := range events {
		lines = append(append(lines, events[i].Body...), '\n')
	}
	return lines, nil
}

// batchID is made only from sources, ids and bodies: an event that comes again has another time
// of receipt, and an old id with another body must not be taken for the old event. It contains
// no ".", since it is signed.
func batchID(events []relay.Event) string {
	h := sha256.New()
	part := func(b []byte) {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(b))))
		_, _ = h.Write(b)
	}
	for i := range events {
		part([]byte(events[i].Source))
		part([]byte(events[i].ID))
		part(events[i].Body)
	}
	return "batch_" + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}
