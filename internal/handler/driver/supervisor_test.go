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

// claiming returns a running pod that claims to belong to the VMI.
func claiming(instance *v1.VirtualMachineInstance, namespace, uid, app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: uid, UID: types.UID(uid), CreationTimestamp: metav1.Now(),
			Labels: map[string]string{v1.CreatedByLabel: string(instance.UID), v1.AppLabel: app},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
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
		s.PodSeen(claiming(instance, namespace, namespace+"-attachment", layout.AttachmentApp))
	}
	pods, attachmentPods := d.presence.Pods(), d.presence.Observe().AttachmentPods
	if len(pods) != 1 || pods[0].Namespace != "shop" {
		t.Errorf("the driver was given the launcher pods %v", pods)
	}
	if len(attachmentPods) != 1 || attachmentPods[0].Name != "shop-attachment" {
		t.Errorf("the driver was given the attachment pods %+v", attachmentPods)
	}
	gone := func(namespace string) {
		s.PodGone(claiming(instance, namespace, namespace+"-launcher", layout.LauncherApp))
		s.PodGone(claiming(instance, namespace, namespace+"-attachment", layout.AttachmentApp))
	}
	gone("other")
	pods, attachmentPods = d.presence.Pods(), d.presence.Observe().AttachmentPods
	if len(pods) != 1 || len(attachmentPods) != 1 {
		t.Errorf("the end of pods elsewhere took the VMI's own: %v, %v", pods, attachmentPods)
	}
	gone("shop")
	if len(s.pods) > 0 || len(s.attachmentPods) > 0 {
		t.Errorf("of pods that are gone is kept: %v, %v", s.pods, s.attachmentPods)
	}
}

// TestTwoWatchesShowAVMI: when its guest arrives, one of them stops showing it, before or after the other begins.
func TestTwoWatchesShowAVMI(t *testing.T) {
	s := NewSupervisor(&Env{})
	instance := scheduled("both")
	s.VMISeen(Coming, instance)
	s.VMISeen(Here, instance)
	s.VMIGone(Coming, "both")
	if s.waiting["both"] == nil {
		t.Error("the VMI is gone, and one watch still shows it")
	}
	s.VMIGone(Here, "both")
	if s.waiting["both"] != nil || len(s.shown) > 0 {
		t.Error("the VMI is still there, and no watch shows it")
	}
}
