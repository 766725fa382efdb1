package hotplug

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestTheSuccessorIsTheNewestRecordedPodThatHoldsTheVolume(t *testing.T) {
	record := Record{Pods: []AttachmentPod{
		{Name: "hp-1", UID: "u1"}, {Name: "hp-2", UID: "u2"}, {Name: "hp-3"},
	}}
	made := func(name string, uid types.UID, second int64, edits ...func(*Pod)) Pod {
		p := Pod{Name: name, UID: uid, Created: time.Unix(second, 0), Running: true, Volumes: vol("a")}
		for _, edit := range edits {
			edit(&p)
		}
		return p
	}
	first := made("hp-1", "u1", 1)
	for name, test := range map[string]struct {
		pods []Pod
		want types.UID
	}{
		"no pod is seen":                            {nil, ""},
		"one pod":                                   {[]Pod{first}, "u1"},
		"a newer one is seen first":                 {[]Pod{made("hp-2", "u2", 2), first}, "u2"},
		"a newer one is seen last":                  {[]Pod{first, made("hp-2", "u2", 2)}, "u2"},
		"one that was recorded later is older":      {[]Pod{made("hp-1", "u1", 3), made("hp-2", "u2", 2)}, "u1"},
		"two of the same second, the greater first": {[]Pod{made("hp-2", "u2", 1), first}, "u2"},
		"two of the same second, the greater last":  {[]Pod{first, made("hp-2", "u2", 1)}, "u2"},
		"the newer one's UID is not noted yet":      {[]Pod{first, made("hp-3", "u3", 2)}, "u1"},
		"the newer one has another UID than noted":  {[]Pod{first, made("hp-2", "forged", 2)}, "u1"},
		"the newer one is not recorded":             {[]Pod{first, made("hp-4", "u4", 2)}, "u1"},
		"the newer one does not run yet":            {[]Pod{first, made("hp-2", "u2", 2, func(p *Pod) { p.Running = false })}, "u1"},
		"the newer one is being deleted":            {[]Pod{first, made("hp-2", "u2", 2, func(p *Pod) { p.Terminating = true })}, "u1"},
		"the newer one has ended":                   {[]Pod{first, made("hp-2", "u2", 2, func(p *Pod) { p.Finished = true })}, "u1"},
		"the newer one has another volume":          {[]Pod{first, made("hp-2", "u2", 2, func(p *Pod) { p.Volumes = vol("b") })}, "u1"},
		"the newer one has it on another claim": {[]Pod{first, made("hp-2", "u2", 2, func(p *Pod) {
			p.Volumes = []Volume{{Name: "a", Claim: "other"}}
		})}, "u1"},
	} {
		t.Run(name, func(t *testing.T) {
			var got types.UID
			if p := Successor(record, vol("a")[0], test.pods); p != nil {
				got = p.UID
			}
			if got != test.want {
				t.Errorf("it is %q, expected %q", got, test.want)
			}
		})
	}
}
