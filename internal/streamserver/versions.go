package streamserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/auditrelay/auditrelay/internal/record"
)

// Keys of the metadata of the events' stream. They say who wrote to it last.
const (
	metaRecordVersion = "auditrelay.record-version"
	metaProgram       = "auditrelay.version"
)

// AdviceLater is the remedy for records of a later version.
const AdviceLater = "run the version that wrote them, or a later one; nothing was changed"

// checkVersion refuses an events' stream of a later version: by its metadata, and by its
// oldest and newest record. A source waits at any other record of a later version.
func (c *Conn) checkVersion(ctx context.Context, events string) error {
	stream, err := c.JetStream.Stream(ctx, events)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	noted, _ := strconv.Atoi(info.Config.Metadata[metaRecordVersion]) // early versions noted none: 0
	if noted > record.Version {
		return fmt.Errorf("stream %s: %w: auditrelay %s writes records of version %d, this one reads up to %d; run that version or a later one; nothing was changed",
			events, record.ErrVersion, cmp.Or(info.Config.Metadata[metaProgram], "of an unknown version"), noted, record.Version)
	}
	if info.State.Msgs == 0 {
		return nil
	}
	for _, seq := range []uint64{info.State.FirstSeq, info.State.LastSeq} {
		if _, err := c.Verified(ctx, seq, false); err != nil {
			return err
		}
		msg, err := stream.GetMsg(ctx, seq)
		if err != nil {
			continue // the journal names lost records; a source looks at each
		}
		if err := record.CheckVersion(msg.Data); err != nil {
			return fmt.Errorf("stream %s, position %d: %w; %s", events, seq, err, AdviceLater)
		}
	}
	return nil
}

// Metadata is for the events' stream: it names the version of the writing program.
func Metadata(program string) map[string]string {
	return map[string]string{
		metaRecordVersion: strconv.Itoa(record.Version),
		metaProgram:       cmp.Or(program, "dev"),
	}
}
