package loki

import (
	"strings"

	"github.com/grafana/loki/pkg/push"

	"github.com/auditrelay/auditrelay/internal/wire"
	"github.com/auditrelay/auditrelay/relay"
)

// parseLabels reads a stream's labels as the relay's own ingest does.
func parseLabels(text string) ([]relay.Label, error) {
	plain, err := (&push.PushRequest{Streams: []push.Stream{{Labels: text}}}).Marshal()
	if err != nil {
		return nil, err
	}
	var h labelHandler
	err = wire.DecodeLokiProto(plain, wire.LabelLimit{Count: 1 << 20, Bytes: 1 << 30}, &h)
	return h.labels, err
}

type labelHandler struct{ labels []relay.Label }

func (h *labelHandler) Stream(labels []relay.Label) error {
	for _, l := range labels {
		h.labels = append(h.labels, relay.Label{Name: strings.Clone(l.Name), Value: strings.Clone(l.Value)})
	}
	return nil
}
func (h *labelHandler) Entry(wire.Place, *wire.Entry) error { return nil }
func (h *labelHandler) Refuse(p wire.Problem) error         { return p }
