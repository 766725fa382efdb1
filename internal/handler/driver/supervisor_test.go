package driver

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
)

// claiming is a running pod that says of itself that it belongs to the VMI.
func claiming(instance *v1.VirtualMachineInstance, namespace, uid, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: uid, UID: types.UID(uid), CreationTimestamp: metav1.Now(),
			Labels: map[string]string{v1.CreatedByLabel: string(instance.UID), v1.AppLabel: app},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func TestOnlyTheChosenPodIsTheLauncher(t *testing.T) {
	instance := scheduled("u")
	chosen := claiming(instance, "shop", "pod-of-u", layout.LauncherApp)
	for name, c := range map[string]struct {
		pods []*corev1.Pod
		want *corev1.Pod
	}{
		"the chosen pod":                         {[]*corev1.Pod{chosen}, chosen},
		"a younger pod bears the label, too":     {[]*corev1.Pod{claiming(instance, "shop", "younger", layout.LauncherApp), chosen}, chosen},
		"only a pod that bears the label":        {[]*corev1.Pod{claiming(instance, "shop", "younger", layout.LauncherApp)}, nil},
		"a pod of that UID in another namespace": {[]*corev1.Pod{claiming(instance, "other", "pod-of-u", layout.LauncherApp)}, nil},
	} {
		if got := launcherPod(instance, c.pods); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A user of another namespace knows the VMI's UID, and labels pods with it.
func TestPodsOfOtherNamespacesAreNobodys(t *testing.T) {
	instance := scheduled("u")
	s := NewSupervisor(&Env{Log: logr.Discard()})
	d := newDriver(s.env, instance)
	s.drivers[instance.UID] = d
	for _, namespace := range []string{"shop", "other"} {
		s.PodSeen(claiming(instance, namespace, namespace+"-launcher", layout.LauncherApp))
		s.PodSeen(claiming(instance, namespace, namespace+"-holder", layout.AttachmentApp))
	}
	if len(d.pods) != 1 || d.pods[0].Namespace != "shop" {
		t.Errorf("the driver was given the launcher pods %v", d.pods)
	}
	if len(d.holders) != 1 || d.holders[0].Name != "shop-holder" {
		t.Errorf("the driver was given the attachment pods %+v", d.holders)
	}
	gone := func(namespace string) {
		s.PodGone(claiming(instance, namespace, namespace+"-launcher", layout.LauncherApp))
		s.PodGone(claiming(instance, namespace, namespace+"-holder", layout.AttachmentApp))
	}
	gone("other")
	if len(d.pods) != 1 || len(d.holders) != 1 {
		t.Errorf("the end of pods elsewhere took the VMI's own: %v, %v", d.pods, d.holders)
	}
	gone("shop")
	if len(s.pods) > 0 || len(s.holders) > 0 {
		t.Errorf("of pods that are gone is kept: %v, %v", s.pods, s.holders)
	}
}
