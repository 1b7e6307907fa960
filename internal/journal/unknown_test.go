package journal

import (
	"encoding/binary"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/minio/highwayhash"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/streamserver"
	"github.com/auditrelay/auditrelay/relay/relaytest"
)

// otherChecksums gives the frames of a block another checksum, as another version of
// the server might.
func otherChecksums(t *testing.T, stream, path string) {
	t.Helper()
	b, err := blockfile.Read(stream, path)
	require.NoError(t, err)
	for _, f := range b.Frames(0) {
		for i := f.Offset + f.Size - natsserver.FrameChecksum; i < f.Offset+f.Size; i++ {
			b.Bytes[i] ^= 0x5a
		}
	}
	require.NoError(t, os.WriteFile(path, b.Bytes, 0o600))
}

// An unknown form is not damage: the start is refused, and every file stays as it is.
func TestAnUnknownFormRefusesTheStart(t *testing.T) {
	t.Parallel()
	sound := newWreck(t, 60, 40)
	j := open(t, sound.dir, sound.cfg)
	for i := range 30 { // some thousand events in all
		j.push(t, relaytest.Events(100, relaytest.From(1000+100*i)))
	}
	j.shut(t)
	all := sound.blocks(t)
	events := "msgs of " + sound.names.events
	inStream := func(w *wreck, elements ...string) string {
		return filepath.Join(append([]string{datadir.StreamDir(w.dir, w.names.events)}, elements...)...)
	}
	for name, change := range map[string]func(t *testing.T, w *wreck){
		"another checksum": func(t *testing.T, w *wreck) {
			for _, path := range w.blocks(t) {
				otherChecksums(t, w.names.events, path)
			}
		},
		"another checksum since an upgrade that was rolled back": func(t *testing.T, w *wreck) {
			for _, path := range w.blocks(t)[len(all)-4:] {
				otherChecksums(t, w.names.events, path)
			}
		},
		"another frame": func(t *testing.T, w *wreck) {
			for _, path := range w.blocks(t) {
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				for i := range data {
					data[i] = ^data[i]
				}
				require.NoError(t, os.WriteFile(path, data, 0o600))
			}
		},
		"a compressed block": func(t *testing.T, w *wreck) {
			path := w.blocks(t)[2]
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, append([]byte(natsserver.CompressedPrefix), data...), 0o600))
		},
		"an encrypted block": func(t *testing.T, w *wreck) {
			key := strings.TrimSuffix(w.blocks(t)[2], natsserver.BlockSuffix) + natsserver.KeySuffix
			require.NoError(t, os.WriteFile(key, []byte("key"), 0o600))
		},
		"an encrypted description": func(t *testing.T, w *wreck) {
			require.NoError(t, os.WriteFile(inStream(w, natsserver.DescriptionKey), []byte("key"), 0o600))
		},
		"a later index": func(t *testing.T, w *wreck) {
			path := inStream(w, natsserver.MessagesDir, natsserver.IndexFile)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[1] = natsserver.IndexVersion + 1
			key := natsserver.Key(w.names.events)
			sum := highwayhash.Sum64(data[:len(data)-8], key[:])
			require.NoError(t, os.WriteFile(path, binary.LittleEndian.AppendUint64(data[:len(data)-8], sum), 0o600))
		},
		"a later consumer state": func(t *testing.T, w *wreck) {
			path := inStream(w, natsserver.ConsumersDir, consumerPrefix+"k", natsserver.PositionFile)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			data[1] = natsserver.PositionVersion + 1
			require.NoError(t, os.WriteFile(path, append(data, 7), 0o600))
		},
		"descriptions with another checksum": func(t *testing.T, w *wreck) {
			sums, err := filepath.Glob(filepath.Join(datadir.StreamDir(w.dir, "*"), natsserver.DescriptionSum))
			require.NoError(t, err)
			consumers, err := filepath.Glob(filepath.Join(datadir.StreamDir(w.dir, "*"), natsserver.ConsumersDir, "*", natsserver.DescriptionSum))
			require.NoError(t, err)
			for _, path := range append(sums, consumers...) {
				require.NoError(t, os.WriteFile(path, []byte(strconv.FormatInt(1<<60, 16)), 0o600))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := sound.copied(t)
			change(t, w)
			before := snapshot(t, w.dir)
			conn, err := streamserver.Connect(t.Context(), w.dir, w.cfg, slog.New(slog.DiscardHandler))
			if err == nil {
				require.NoError(t, conn.Close())
			}
			require.ErrorIs(t, err, blockfile.ErrForm, events)
			require.ErrorContains(t, err, "nothing was changed")
			assert.Equal(t, before, snapshot(t, w.dir))
		})
	}
}

// A person may decide it is damage.
func TestAnUnknownFormIsTakenForDamageByAPerson(t *testing.T) {
	t.Parallel()
	w := newWreck(t, 60, 40)
	for _, path := range w.blocks(t)[4:] {
		otherChecksums(t, w.names.events, path)
	}
	assert.Positive(t, w.verify(t).Open())
	_, err := Repair(t.Context(), w.dir, w.cfg, slog.New(slog.DiscardHandler), RepairOptions{})
	require.ErrorIs(t, err, blockfile.ErrForm)
	done, err := Repair(t.Context(), w.dir, w.cfg, slog.New(slog.DiscardHandler), RepairOptions{UnknownIsDamage: true})
	require.NoError(t, err)
	assert.NotEmpty(t, done.Mended)
	assert.NotEmpty(t, done.SetAside)
	j := open(t, w.dir, w.cfg)
	defer j.shut(t)
	j.push(t, relaytest.Events(1))
	assert.True(t, j.Losses.Damage().Held, "sinks wait before so much")
}
