package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/store"
	"github.com/auditrelay/auditrelay/internal/testbed/damage"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

const pinName = "audit.key.checkpoint"

// entriesDir and keptDir are the folders of the trail's logs.
var (
	entriesDir = filepath.Join(app.StoreDir, audit.EntriesLog)
	keptDir    = filepath.Join(app.StoreDir, audit.CheckpointsLog)
)

func (x *tamperer) any() tampered {
	return pick(x, x.entry, x.entries, x.checkpoint, x.checkpoints, x.file, x.replacedFile, x.key, x.pin, x.marks, x.rolledBack, x.replaced)()
}

func (x *tamperer) store() damage.Store { return damage.Of(x.path(".")) }

// drafts are the records of a log.
func (x *tamperer) drafts(log string) []store.Draft {
	x.t.Helper()
	all, err := x.store().Drafts(x.t.Context(), log)
	require.NoError(x.t, err)
	return all
}

// places are where the records of a log stand.
func (x *tamperer) places(log string) []damage.Place {
	x.t.Helper()
	all, err := x.store().Records(log)
	require.NoError(x.t, err)
	return all
}

// reseal puts a log with other records, and with good checksums, in the place of a log.
func (x *tamperer) reseal(log string, drafts []store.Draft) {
	x.t.Helper()
	require.NoError(x.t, x.store().Rewrite(x.t.Context(), log, drafts))
}

// flip flips a bit anywhere in a record.
func (x *tamperer) flip(at damage.Place) {
	x.t.Helper()
	data, err := os.ReadFile(at.File)
	require.NoError(x.t, err)
	data[at.Offset+x.r.Int64N(at.Size)] ^= 1 << x.r.IntN(8)
	require.NoError(x.t, os.WriteFile(at.File, data, 0o600))
}

// entry tampers with single entries of the log. The trail's files have them still, or are gone
// too.
func (x *tamperer) entry() tampered {
	drafts := x.drafts(audit.EntriesLog)
	a := x.r.IntN(len(drafts) - 1)
	c := tampered{kind: "entry " + pick(x, "flipped", "forged", "forged in place", "forged twice", "misfiled", "swapped", "erased", "left out")}
	touched := []int64{int64(a)}
	switch c.kind {
	case "entry flipped":
		x.flip(x.places(audit.EntriesLog)[a])
	case "entry forged":
		drafts[a].Data[x.r.IntN(len(drafts[a].Data))] ^= 1 << x.r.IntN(8)
		x.reseal(audit.EntriesLog, drafts)
	case "entry forged in place": // under the log's own ID
		require.NoError(x.t, x.store().Forge(audit.EntriesLog, a, func(data []byte) { data[x.r.IntN(len(data))] ^= 1 << x.r.IntN(8) }))
	case "entry forged twice": // and in the trail's files
		x.forgeTwice(a)
		return tampered{kind: c.kind, what: fmt.Sprintf("entry %d", a), named: true, right: func(f proof.Finding) bool {
			return f.From == int64(a) && f.To == f.From && slices.Contains([]string{"altered", "misfiled"}, f.Kind)
		}}
	case "entry misfiled": // its hash says nothing about it
		drafts[a].Key += "x"
		x.reseal(audit.EntriesLog, drafts)
		return tampered{kind: c.kind, what: fmt.Sprintf("entry %d", a), named: true, right: func(f proof.Finding) bool {
			return f.From == int64(a) && f.To == f.From && f.Kind == "misfiled" && inLogs(f)
		}}
	case "entry swapped":
		b := (a + 1 + x.r.IntN(len(drafts)-1)) % len(drafts)
		drafts[a], drafts[b] = drafts[b], drafts[a]
		touched = append(touched, int64(b))
		x.reseal(audit.EntriesLog, drafts)
	case "entry erased":
		require.NoError(x.t, x.store().Erase(audit.EntriesLog, a))
	case "entry left out": // as if it had never been
		x.reseal(audit.EntriesLog, slices.Delete(drafts, a, a+1))
		touched = countFrom(int64(a), int64(len(drafts)))
	}
	c.what = fmt.Sprintf("entries %v", touched)
	x.lose(&c, touched)
	return c
}

// forgeTwice changes the same byte of an entry in the log and in its bundle.
func (x *tamperer) forgeTwice(a int) {
	x.t.Helper()
	bundle := fmt.Sprintf("tlog/0/tile/entries/000.p/%d", x.made.size)
	files := x.read(bundle)
	at := bytes.Index(files, x.drafts(audit.EntriesLog)[a].Data)
	require.Positive(x.t, at)
	require.NoError(x.t, x.store().Forge(audit.EntriesLog, a, func(data []byte) {
		i := x.r.IntN(len(data))
		data[i] ^= 1 << x.r.IntN(8)
		files[at+i] = data[i]
	}))
	x.write(bundle, files)
}

// lose expects findings about these entries of the log only. Half of the time it takes the
// trail's files away. As long as they have the entries, nothing is lost, and the trail says that
// they are restored.
func (x *tamperer) lose(c *tampered, touched []int64) {
	kinds := []string{"restored"}
	c.named = true
	if x.r.IntN(2) == 0 {
		x.remove("tlog")
		kinds = []string{"altered", "missing", "moved", "truncated", "misfiled"}
		c.kind += ", without files"
	}
	c.right = func(f proof.Finding) bool {
		for i := f.From; i <= f.To; i++ {
			if !slices.Contains(touched, i) {
				return false
			}
		}
		return f.From >= 0 && slices.Contains(kinds, f.Kind) && inLogs(f)
	}
}

func countFrom(from, to int64) (all []int64) {
	for i := from; i < to; i++ {
		all = append(all, i)
	}
	return all
}

// entries tampers with the log of entries as a whole.
func (x *tamperer) entries() tampered {
	c := tampered{kind: "entries " + pick(x, "cut", "truncated", "removed", "rolled back", "end mark put back")}
	drafts, from := x.drafts(audit.EntriesLog), 0
	switch c.kind {
	case "entries cut":
		from = x.r.IntN(len(drafts))
		at := x.places(audit.EntriesLog)[from]
		require.NoError(x.t, os.Truncate(at.File, at.Offset+x.r.Int64N(at.Size)))
	case "entries truncated":
		from = x.r.IntN(len(drafts))
		x.reseal(audit.EntriesLog, drafts[:from])
	case "entries removed":
		x.remove(entriesDir)
	case "entries end mark put back": // the entries after it are found all the same
		x.put(x.made.older, entriesDir+".end")
		return tampered{kind: c.kind + ", no finding"}
	default:
		x.put(x.made.older, entriesDir)
		from = len(x.drafts(audit.EntriesLog))
	}
	c.what = fmt.Sprintf("from entry %d on", from)
	x.lose(&c, countFrom(int64(from), int64(len(drafts))))
	return c
}

// checkpoint tampers with one of the log of checkpoints.
func (x *tamperer) checkpoint() tampered {
	drafts := x.drafts(audit.CheckpointsLog)
	a := x.r.IntN(len(drafts) - 1)
	c := tampered{kind: "checkpoint " + pick(x, "flipped", "forged", "erased", "left out"), what: fmt.Sprintf("number %d", a+1), named: true}
	switch c.kind {
	case "checkpoint flipped":
		x.flip(x.places(audit.CheckpointsLog)[a])
	case "checkpoint forged": // another key's, of other entries
		other := tamperer{t: x.t, dir: x.stranger.dir}
		drafts[a].Data = other.drafts(audit.CheckpointsLog)[a%10].Data
		x.reseal(audit.CheckpointsLog, drafts)
	case "checkpoint left out": // as if it had never been; the trail's files have it
		x.reseal(audit.CheckpointsLog, slices.Delete(drafts, a, a+1))
	default:
		require.NoError(x.t, x.store().Erase(audit.CheckpointsLog, a))
	}
	c.right = func(f proof.Finding) bool {
		return f.Kind == "checkpoint" && f.From == int64(a+1) && f.To == f.From && inLogs(f)
	}
	return c
}

// checkpoints tampers with their log as a whole.
func (x *tamperer) checkpoints() tampered {
	c := tampered{kind: "checkpoints " + pick(x, "cut", "truncated", "removed", "rolled back"), named: true, right: ofKind("checkpoint", "pin", "truncated")}
	drafts := x.drafts(audit.CheckpointsLog)
	at := x.r.IntN(len(drafts) - 3)
	switch c.kind {
	case "checkpoints cut":
		place := x.places(audit.CheckpointsLog)[at]
		require.NoError(x.t, os.Truncate(place.File, place.Offset))
	case "checkpoints truncated":
		x.reseal(audit.CheckpointsLog, drafts[:at])
	case "checkpoints removed":
		x.remove(keptDir)
	default:
		x.put(x.made.older, keptDir)
	}
	c.what = fmt.Sprintf("from %d on", at+1)
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
func ofLogFile(name string) func(proof.Finding) bool {
	return func(f proof.Finding) bool {
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
	name := pick(x, entriesDir+".end", keptDir+".end", app.ForwardedFile, "trail.index", "rhythm.json")
	return tampered{kind: "marks spoilt, no finding", what: x.spoil(name)}
}

// rolledBack puts an older copy of the trail in its place, and leaves one witness of it.
func (x *tamperer) rolledBack() tampered {
	c := tampered{kind: "rolled back, " + pick(x, "pin kept", "note kept", "files kept", "checkpoint elsewhere")}
	parts := map[string]string{"rolled back, pin kept": pinName, "rolled back, note kept": app.ForwardedFile, "rolled back, files kept": "tlog"}
	for _, name := range []string{app.StoreDir, pinName, app.ForwardedFile, "tlog", "audit.key", "trail.index"} {
		if parts[c.kind] != name {
			x.put(x.made.older, name)
		}
	}
	old := int64(len(x.drafts(audit.EntriesLog)))
	c.right = func(f proof.Finding) bool {
		return slices.Contains([]string{"truncated", proof.KindMissing, proof.KindUnproven}, f.Kind) && f.From >= old-1 && f.To < x.made.size
	}
	if _, kept := parts[c.kind]; !kept {
		elsewhere := filepath.Join(x.t.TempDir(), "checkpoint")
		require.NoError(x.t, os.WriteFile(elsewhere, x.newestPin(), 0o600))
		c.flags = []string{"--checkpoint", elsewhere}
	}
	_, c.named = parts[c.kind] // the relay knows the pin, its note, and the trail's files
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
	return tampered{kind: "replaced by a stranger's", right: func(f proof.Finding) bool {
		return f.Kind == proof.KindKey || f.Kind == proof.KindCheckpoint && slices.Contains([]string{"checkpoint", "checkpoints"}, f.File)
	}}
}
