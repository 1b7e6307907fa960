package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/minio/highwayhash"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/datadir/blockfile"
	"github.com/auditrelay/auditrelay/internal/datadir/natsserver"
	"github.com/auditrelay/auditrelay/internal/verify"
)

const (
	streamsDir  = "jetstream/jetstream/$G/streams/"
	entriesName = "AUDITRELAY_AUDIT"
	keptName    = "AUDITRELAY_CHECKPOINTS"
	pinName     = "audit.key.checkpoint"
)

func (x *tamperer) any() tampered {
	return pick(x, x.entry, x.entries, x.checkpoint, x.checkpoints, x.file, x.replacedFile, x.key, x.pin, x.marks, x.rolledBack, x.replaced)()
}

// frames are the messages of a stream.
func (x *tamperer) frames(stream string) []blockfile.Frame {
	x.t.Helper()
	b, err := blockfile.Read(stream, x.path(streamsDir+stream+"/msgs/1.blk"))
	require.NoError(x.t, err)
	return b.Frames(0)
}

// reseal writes a stream's messages back with good checksums.
func (x *tamperer) reseal(stream string, frames []blockfile.Frame) {
	x.t.Helper()
	var block []byte
	for _, f := range frames {
		block = append(block, sealedFrame(stream, f)...)
	}
	x.write(streamsDir+stream+"/msgs/1.blk", block)
}

// sealedFrame is a message as nats-server writes it (see natsserver).
func sealedFrame(stream string, f blockfile.Frame) []byte {
	body := []byte(f.Subject)
	length := uint32(0)
	if len(f.Header) > 0 {
		length = natsserver.HeadersBit
		body = append(binary.LittleEndian.AppendUint32(body, uint32(len(f.Header))), f.Header...)
	}
	body = append(body, f.Data...)
	out := binary.LittleEndian.AppendUint32(nil, length|uint32(natsserver.FrameMin+len(body)))
	out = binary.LittleEndian.AppendUint64(out, f.Seq)
	out = binary.LittleEndian.AppendUint64(out, uint64(f.Time.UnixNano()))
	out = append(binary.LittleEndian.AppendUint16(out, uint16(len(f.Subject))), body...)
	key := natsserver.BlockKey(stream, 1)
	sum, _ := highwayhash.New64(key[:]) // fails only for a key of another size
	_, _ = sum.Write(out[4:20])
	_, _ = sum.Write([]byte(f.Subject))
	_, _ = sum.Write(f.Header)
	_, _ = sum.Write(f.Data)
	return binary.LittleEndian.AppendUint64(out, sum.Sum64())
}

// entry tampers with single entries of the stream. The trail's files have them still, or
// are gone too.
func (x *tamperer) entry() tampered {
	frames := x.frames(entriesName)
	a := x.r.IntN(len(frames) - 1)
	c := tampered{kind: "entry " + pick(x, "flipped", "forged", "swapped", "dropped", "renumbered"), named: true}
	touched := []int64{int64(a)}
	switch c.kind {
	case "entry flipped":
		block := x.read(streamsDir + entriesName + "/msgs/1.blk")
		block[frames[a].Offset+x.r.IntN(frames[a].Size)] ^= 1 << x.r.IntN(8)
		x.write(streamsDir+entriesName+"/msgs/1.blk", block)
	case "entry forged":
		frames[a].Data = slices.Clone(frames[a].Data)
		frames[a].Data[x.r.IntN(len(frames[a].Data))] ^= 1 << x.r.IntN(8)
		x.reseal(entriesName, frames)
	case "entry swapped":
		b := (a + 1 + x.r.IntN(len(frames)-1)) % len(frames)
		frames[a].Seq, frames[b].Seq = frames[b].Seq, frames[a].Seq
		frames[a], frames[b] = frames[b], frames[a]
		touched = append(touched, int64(b))
		x.reseal(entriesName, frames)
	case "entry dropped":
		x.reseal(entriesName, slices.Delete(frames, a, a+1))
	case "entry renumbered": // as if it had never been
		frames = slices.Delete(frames, a, a+1)
		for i := a; i < len(frames); i++ {
			frames[i].Seq--
			touched = append(touched, int64(i+1))
		}
		x.reseal(entriesName, frames)
	}
	c.what = fmt.Sprintf("entries %v", touched)
	c.right = x.lost(touched)
	return c
}

// lost expects findings about these entries of the streams only. Half of the time it takes
// the trail's files away, so that nothing restores them.
func (x *tamperer) lost(touched []int64) func(verify.Finding) bool {
	kinds := []string{"restored"}
	if x.r.IntN(2) == 0 {
		x.remove("tlog")
		kinds = []string{"altered", "missing", "moved", "removed", "foreign", "truncated", "misfiled"}
	}
	return func(f verify.Finding) bool {
		for i := f.From; i <= f.To; i++ {
			if !slices.Contains(touched, i) {
				return false
			}
		}
		return f.From >= 0 && slices.Contains(kinds, f.Kind) && inStreams(f)
	}
}

func countFrom(from, to int64) (all []int64) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// entries tampers with the stream of entries as a whole.
func (x *tamperer) entries() tampered {
	c := tampered{kind: "entries " + pick(x, "truncated", "removed", "rolled back"), named: true}
	end, from := int64(len(x.frames(entriesName))), 0
	switch c.kind {
	case "entries truncated":
		frames := x.frames(entriesName)
		from = x.r.IntN(len(frames))
		cut := frames[from].Offset + x.r.IntN(frames[from].Size)
		x.write(streamsDir+entriesName+"/msgs/1.blk", x.read(streamsDir + entriesName + "/msgs/1.blk")[:cut])
	case "entries removed":
		x.remove(streamsDir + entriesName)
	default:
		x.put(x.made.older, streamsDir+entriesName)
		from = len(x.frames(entriesName))
	}
	c.what = fmt.Sprintf("from entry %d on", from)
	c.right = x.lost(countFrom(int64(from), end))
	return c
}

// checkpoint tampers with one of the stream of checkpoints.
func (x *tamperer) checkpoint() tampered {
	frames := x.frames(keptName)
	a := x.r.IntN(len(frames) - 1)
	c := tampered{kind: "checkpoint " + pick(x, "flipped", "forged", "dropped"), what: fmt.Sprintf("number %d", a+1), named: true}
	switch c.kind {
	case "checkpoint flipped":
		block := x.read(streamsDir + keptName + "/msgs/1.blk")
		block[frames[a].Offset+x.r.IntN(frames[a].Size)] ^= 1 << x.r.IntN(8)
		x.write(streamsDir+keptName+"/msgs/1.blk", block)
	case "checkpoint forged": // another key's, of other entries
		other := tamperer{t: x.t, dir: x.stranger.dir}
		frames[a].Data = other.frames(keptName)[a%10].Data
		x.reseal(keptName, frames)
	default:
		x.reseal(keptName, slices.Delete(frames, a, a+1))
	}
	c.right = func(f verify.Finding) bool {
		return f.Kind == "checkpoint" && f.From == int64(a+1) && f.To == f.From && inStreams(f)
	}
	return c
}

// checkpoints tampers with their stream as a whole.
func (x *tamperer) checkpoints() tampered {
	c := tampered{kind: "checkpoints " + pick(x, "truncated", "removed", "rolled back"), named: true, right: ofKind("checkpoint", "pin", "truncated")}
	switch c.kind {
	case "checkpoints truncated":
		frames := x.frames(keptName)
		at := x.r.IntN(len(frames) - 3)
		c.what = fmt.Sprintf("from %d on", at+1)
		x.write(streamsDir+keptName+"/msgs/1.blk", x.read(streamsDir + keptName + "/msgs/1.blk")[:frames[at].Offset])
	case "checkpoints removed":
		x.remove(streamsDir + keptName)
	default:
		x.put(x.made.older, streamsDir+keptName)
	}
	return c
}

// logFiles are the trail's files for public tools.
func (x *tamperer) logFiles() []string {
	return []string{"checkpoint", "checkpoints", fmt.Sprintf("tile/0/000.p/%d", x.made.size), fmt.Sprintf("tile/entries/000.p/%d", x.made.size)}
}

// file tampers with one of the trail's files. A running relay writes it again.
func (x *tamperer) file() tampered {
	name := pick(x, x.logFiles()...)
	return tampered{kind: "file spoilt", what: x.spoil("tlog/0/" + name), right: ofLogFile(name)}
}

// ofLogFile expects findings about a file. Where the history is gone, the checkpoint is not in it.
func ofLogFile(name string) func(verify.Finding) bool {
	return func(f verify.Finding) bool {
		return f.File == name || name == "checkpoints" && f.File == "checkpoint"
	}
}

func (x *tamperer) replacedFile() tampered {
	name := pick(x, "checkpoint", "checkpoints")
	x.put(x.stranger.dir, "tlog/0/"+name)
	return tampered{kind: "file replaced", what: name + " by a stranger's", right: ofLogFile(name)}
}

func (x *tamperer) key() tampered {
	c := tampered{kind: "key " + pick(x, "removed", "replaced"), right: ofKind("key"), named: true}
	if c.kind == "key removed" {
		x.remove("audit.key")
	} else {
		x.put(x.stranger.dir, "audit.key")
	}
	return c
}

func (x *tamperer) pin() tampered {
	c := tampered{kind: "pin " + pick(x, "removed", "rolled back", "forged", "truncated"), right: ofKind("pin"), named: true}
	switch c.kind {
	case "pin removed":
		x.remove(pinName)
	case "pin rolled back":
		x.put(x.made.older, pinName)
	case "pin forged":
		x.put(x.stranger.dir, pinName)
	default:
		x.write(pinName, x.read(pinName)[:x.r.IntN(150)])
	}
	return c
}

// marks spoils notes: they are evidence, and no part of the trail. Without one there is
// nothing to find.
func (x *tamperer) marks() tampered {
	name := pick(x, "marks/ends/"+entriesName, "marks/ends/"+keptName, "marks/trail/forwarded", "marks/acknowledged", "marks/sink_file", "audit.key.verified")
	return tampered{kind: "marks spoilt, no finding", what: x.spoil(name)}
}

// rolledBack puts an older copy of the trail in its place, and leaves one witness of it.
func (x *tamperer) rolledBack() tampered {
	c := tampered{kind: "rolled back, " + pick(x, "pin kept", "notes kept", "files kept", "checkpoint elsewhere")}
	parts := map[string]string{"rolled back, pin kept": pinName, "rolled back, notes kept": "marks", "rolled back, files kept": "tlog"}
	for _, name := range []string{streamsDir, pinName, "marks", "tlog", "audit.key", "audit.key.verified"} {
		if parts[c.kind] != name {
			x.put(x.made.older, name)
		}
	}
	old := int64(len(x.frames(entriesName)))
	c.right = func(f verify.Finding) bool {
		return slices.Contains([]string{"truncated", verify.Missing, verify.Unproven}, f.Kind) && f.From >= old-1 && f.To < x.made.size
	}
	if _, kept := parts[c.kind]; !kept {
		elsewhere := filepath.Join(x.t.TempDir(), "checkpoint")
		require.NoError(x.t, os.WriteFile(elsewhere, x.newestPin(), 0o600))
		c.flags = []string{"--checkpoint", elsewhere}
	}
	_, c.named = parts[c.kind] // the relay knows the pin, its notes, and the trail's files
	return c
}

func (x *tamperer) newestPin() []byte {
	pin, err := os.ReadFile(filepath.Join(x.made.dir, "data", pinName))
	require.NoError(x.t, err)
	return pin
}

// replaced puts another relay's whole trail there, with its key.
func (x *tamperer) replaced() tampered {
	x.remove(".")
	require.NoError(x.t, os.CopyFS(x.path("."), os.DirFS(filepath.Join(x.stranger.dir, "data"))))
	return tampered{kind: "replaced by a stranger's", right: func(f verify.Finding) bool {
		return f.Kind == verify.Key || f.Kind == verify.Checkpoint && slices.Contains([]string{"checkpoint", "checkpoints"}, f.File)
	}}
}
