package workspace

// The causes of a change.
const (
	// CauseRelay: this relay made the change.
	CauseRelay = "relay"
	// CauseOutside: the relay found the change. Somebody else made it.
	CauseOutside = "outside"
)

// Attribution says who made a change. It is part of an entry's Detail.
type Attribution struct {
	// Cause is [CauseRelay] or [CauseOutside]; empty where nothing changed.
	Cause string `json:"cause,omitempty"`
	// Action is the id of the relay's action that made the change, if it is known.
	Action string `json:"action,omitempty"`
	// Actor is the person or program that made the change: "relay", USER@HOST of a person's
	// action, or "unknown".
	Actor string `json:"actor,omitempty"`
	// ActorReason says why the actor is unknown.
	ActorReason string `json:"actor_reason,omitempty"`
}

// Outside attributes a change found by a look.
func Outside() Attribution {
	return Attribution{Cause: CauseOutside, Actor: "unknown", ActorReason: "the API names no actor of a change"}
}

// ByRelay attributes a change to an action of this relay.
func ByRelay(action string) Attribution {
	return Attribution{Cause: CauseRelay, Action: action, Actor: "relay"}
}

// ByPerson attributes a change to a person's action through this relay.
func ByPerson(action, person string) Attribution {
	return Attribution{Cause: CauseRelay, Action: action, Actor: person}
}

// Requests are the request ids of the two reads around a change.
type Requests struct {
	// Before are those of the last look with the entry's Before. It is empty if the look is
	// unknown.
	Before []string `json:"before,omitempty"`
	// After are those of the first look with the entry's After.
	After []string `json:"after,omitempty"`
}
