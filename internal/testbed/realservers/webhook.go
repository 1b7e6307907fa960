package realservers

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Webhook is a suspicious receiver of webhooks: it checks each request's signature by
// Standard Webhooks 1.0.0 with code of its own, and takes batches of CloudEvents 1.0.2
// only. It is safe for concurrent use.
type Webhook struct {
	// URL is the address for posts, and Secret the key of signatures, whsec_ and base64.
	URL, Secret string

	key    []byte
	server *http.Server

	mu     sync.Mutex // guards the fields below
	ids    map[string]int
	faults []string
}

// StartWebhook starts a receiver on a free port of loopback.
func StartWebhook(ctx context.Context) (*Webhook, error) {
	w := &Webhook{key: make([]byte, 32), ids: map[string]int{}}
	if _, err := rand.Read(w.key); err != nil {
		return nil, fmt.Errorf("draw a webhook's secret: %w", err)
	}
	w.Secret = "whsec_" + base64.StdEncoding.EncodeToString(w.key)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for webhooks: %w", err)
	}
	w.URL = "http://" + listener.Addr().String() + "/events"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events", w.receive)
	w.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = w.server.Serve(listener) }() // ends at Close
	return w, nil
}

// IDs returns how often each CloudEvents id was taken.
func (w *Webhook) IDs() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.ids)
}

// Faults returns the faults of refused requests.
func (w *Webhook) Faults() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.faults)
}

// Close ends it.
func (w *Webhook) Close() { _ = w.server.Close() }

// webhookBytes bounds a body.
const webhookBytes = 16 << 20

func (w *Webhook) receive(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, webhookBytes))
	if err != nil { // it was cut off, and nobody waits for an answer
		return
	}
	ids, err := w.check(r.Header, body)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.faults = append(w.faults, err.Error())
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	for _, id := range ids {
		w.ids[id]++
	}
	rw.WriteHeader(http.StatusNoContent)
}

// check returns the ids of a signed and whole batch.
func (w *Webhook) check(h http.Header, body []byte) (ids []string, err error) {
	mac := hmac.New(sha256.New, w.key)
	fmt.Fprintf(mac, "%s.%s.%s", h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if !slices.Contains(strings.Fields(h.Get("Webhook-Signature")), want) {
		return nil, fmt.Errorf("webhook %q is not signed with the secret", h.Get("Webhook-Id"))
	}
	if got := h.Get("Content-Type"); !strings.HasPrefix(got, "application/cloudevents-batch+json") {
		return nil, fmt.Errorf("webhook of content type %q", got)
	}
	var batch []struct{ ID, SpecVersion string }
	if err := json.Unmarshal(body, &batch); err != nil {
		return nil, fmt.Errorf("decode a webhook's batch: %w", err)
	}
	for _, e := range batch {
		if e.ID == "" || e.SpecVersion != "1.0" {
			return nil, fmt.Errorf("webhook with an event of id %q, specversion %q", e.ID, e.SpecVersion)
		}
		ids = append(ids, e.ID)
	}
	return ids, nil
}
