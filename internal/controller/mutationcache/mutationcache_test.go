package mutationcache

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func pod(uid types.UID, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: uid, ResourceVersion: version}}
}

func TestTheNewerVersionCounts(t *testing.T) {
	key := types.NamespacedName{Namespace: "ns", Name: "a"}
	tests := map[string]struct {
		wrote, cached *corev1.Pod
		want          string
		kept          bool
	}{
		"nothing was written":                        {nil, pod("1", "7"), "7", false},
		"the cache lags":                             {pod("1", "9"), pod("1", "7"), "9", true},
		"the cache has caught up":                    {pod("1", "9"), pod("1", "9"), "9", false},
		"the cache is ahead":                         {pod("1", "9"), pod("1", "10"), "10", false},
		"versions are numbers, not words":            {pod("1", "100"), pod("1", "99"), "100", true},
		"another object of the name is what counts":  {pod("1", "9"), pod("2", "7"), "7", false},
		"a version that can't be compared is no aid": {pod("1", "x"), pod("1", "7"), "7", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var m Memory[*corev1.Pod]
			if test.wrote != nil {
				m.Wrote(test.wrote)
			}
			if got := m.Newer(test.cached); got.ResourceVersion != test.want {
				t.Errorf("version %s, want %s", got.ResourceVersion, test.want)
			}
			if m.Has(key) != test.kept {
				t.Errorf("remembered afterwards: %v", m.Has(key))
			}
			m.Forget(key)
			if m.Has(key) {
				t.Error("it does not forget")
			}
		})
	}
}

func TestADeletionIsAskedForOncePerObject(t *testing.T) {
	var d Deletions
	owner := types.NamespacedName{Namespace: "ns", Name: "a"}
	if d.Asked(owner, "1") {
		t.Error("asked before it was")
	}
	d.Ask(owner, "1")
	if !d.Asked(owner, "1") || d.Asked(owner, "2") {
		t.Error("it is this very object that counts")
	}
	d.Forget(owner)
	if d.Asked(owner, "1") {
		t.Error("it does not forget")
	}
}
