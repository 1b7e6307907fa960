package workspace

import (
	"sync"
	"time"
)

// Newest has the newest good look of this process at each resource; [Checks] attests the
// looks only from time to time. The zero value is ready, and may be used concurrently.
type Newest struct {
	resources sync.Map // resource to look
}

type resource struct{ project, environment, name string }

type look struct {
	began  time.Time
	sha256 string
}

// Of is when the newest good look at a resource began, and the hash of the state it saw,
// as in a [Checked]; the zero time if there was none.
func (n *Newest) Of(project, environment, name string) (began time.Time, sha256 string) {
	found, _ := n.resources.Load(resource{project, environment, name})
	l, _ := found.(look)
	return l.began, l.sha256
}
