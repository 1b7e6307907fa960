// Package settings watches the workspace's settings: it reads each at its interval,
// compares it with the state in the audit trail, and enters the changes into the trail.
//
// The trail is the only state. A look is compared with the After of the resource's newest
// entry. A change is appended right after this entry or not at all. So a change present at a
// look enters once, whatever crashed before, and whoever else is looking. Where the API's
// answer is as it was, to the byte, and nobody has added to the trail, nothing is parsed
// or compared.
//
// States are kept raw, in canonical form (RFC 8785), but compared by meaning: sets, and
// lists keyed by an id, do not change when reordered; an unknown field is compared as it
// stands. See [jsondiff.Diff]. The answers' envelopes (request_id, status_code) are no
// part of a state; the request ids stand in the entry's Detail.
//
// A failed read changes nothing: the old state stands, and an entry names the cause once.
// A missing setting, or environment, is an entry only by a believed 404 (see
// internal/workspace/management, Client.Confirm).
package settings

// resource is one setting of one project or environment.
type resource struct {
	kind        string // by internal/workspace/kinds; the subject of its entries
	project     string
	environment string // empty for a project's
}
