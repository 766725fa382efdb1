package vmireport

import (
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// events is a Cluster that only records events.
type events struct {
	Cluster
	list []string
}

func (e *events) Event(_ *v1.VirtualMachineInstance, kind, reason, message string) {
	e.list = append(e.list, kind+" "+reason+": "+message)
}

func TestWhenAWriteWithoutAnAnswerIsAnnounced(t *testing.T) {
	for name, c := range map[string]struct {
		change          func(now *v1.VirtualMachineInstance, to v1.VirtualMachineInstanceStatus)
		announced, left bool
	}{
		"nothing is new": {func(*v1.VirtualMachineInstance, v1.VirtualMachineInstanceStatus) {}, false, true},
		"it has taken effect": {func(now *v1.VirtualMachineInstance, to v1.VirtualMachineInstanceStatus) {
			now.ResourceVersion, now.Status = "2", to
		}, true, false},
		"it has, and there is another since": {func(now *v1.VirtualMachineInstance, to v1.VirtualMachineInstanceStatus) {
			now.ResourceVersion, now.Status, now.Labels = "3", to, map[string]string{"another": "change"}
		}, true, false},
		"somebody else was first": {func(now *v1.VirtualMachineInstance, _ v1.VirtualMachineInstanceStatus) {
			now.ResourceVersion = "2"
		}, false, false},
	} {
		from := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "1"}}
		from.Status.Phase = v1.Scheduled
		api := &events{}
		r := NewReporter(Env{Cluster: api, Log: logr.Discard()})
		to := *from.Status.DeepCopy()
		to.Phase = v1.Running
		r.unanswered = &Changes{from: from, to: to}
		now := from.DeepCopy()
		c.change(now, to)
		for range 2 {
			r.AnnounceUnanswered(now)
		}
		if events := api.list; (len(events) == 1) != c.announced || len(events) > 1 || (r.unanswered != nil) != c.left {
			t.Errorf("%s: events %q, still unanswered: %v", name, events, r.unanswered != nil)
		}
	}
}
