package hotplug

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/pod/selinux"
)

const launcherContext = "system_u:system_r:container_kvm_t:s0:c12,c34"

func onNode(enabled bool, phase v1.VirtualMachineInstancePhase, reported string) (*observation, *corev1.Node) {
	node := &corev1.Node{}
	node.Name = "one"
	if enabled {
		node.Labels = map[string]string{layout.SELinuxLabel: layout.SELinuxEnabled}
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name, vmi.Namespace, vmi.UID = "vm", "ns", "u"
	vmi.Status.Phase, vmi.Status.SelinuxContext = phase, reported
	launcher := &corev1.Pod{}
	launcher.Name, launcher.Namespace, launcher.UID, launcher.Spec.NodeName = "virt-launcher-vm", "ns", "l", "one"
	launcher.Spec.SecurityContext = &corev1.PodSecurityContext{SELinuxOptions: &corev1.SELinuxOptions{Type: "container_kvm_t"}}
	return &observation{vmi: vmi, launcher: launcher, host: launcher}, node
}

// TestNoAttachmentPodIsMadeWithoutTheLaunchersLevel waits for the launcher's level: an attachment pod with a level of
// its own would relabel its volumes, and lock their users out.
func TestNoAttachmentPodIsMadeWithoutTheLaunchersLevel(t *testing.T) {
	own := &corev1.SELinuxOptions{Type: "container_kvm_t"}
	level := &corev1.SELinuxOptions{Type: "container_kvm_t", Level: "s0:c12,c34"}
	for name, tc := range map[string]struct {
		enabled  bool
		phase    v1.VirtualMachineInstancePhase
		reported string
		want     *corev1.SELinuxOptions // nil for no pod
		says     string
		fails    bool
	}{
		"a node without SELinux":                    {phase: v1.Scheduled, want: own},
		"the guest has not started":                 {enabled: true, phase: v1.Scheduled},
		"the guest runs, and nothing is reported":   {enabled: true, phase: v1.Running, says: "has not reported"},
		"the context is known":                      {enabled: true, phase: v1.Running, reported: launcherContext, want: level},
		"it is known before the node has its label": {phase: v1.Running, reported: launcherContext, want: level},
		"what is reported is no context":            {enabled: true, phase: v1.Running, reported: "spc_t:s0", says: "no SELinux context", fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, node := onNode(tc.enabled, tc.phase, tc.reported)
			cluster, recorder := clientOf(t, node), events.NewFakeRecorder(10)
			r := &Reconciler{Client: cluster, Reader: cluster, Recorder: recorder, Now: time.Now,
				Settings: func(context.Context) (clusterconfig.Settings, error) { return clusterconfig.FromKubeVirt(nil), nil }}
			attachmentPods := []hotplug.AttachmentPod{{Name: "hp-volume-1"}}
			// Twice, because the loop must report it only once.
			for range 2 {
				if err := r.makePods(t.Context(), s, attachmentPods); (err != nil) != tc.fails {
					t.Fatal(err)
				}
			}
			var pods corev1.PodList
			if err := cluster.List(t.Context(), &pods); err != nil {
				t.Fatal(err)
			}
			var got []*corev1.SELinuxOptions
			for i := range pods.Items {
				got = append(got, pods.Items[i].Spec.SecurityContext.SELinuxOptions)
			}
			var want []*corev1.SELinuxOptions
			if tc.want != nil {
				want = append(want, tc.want)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			said := r.memory.failures(client.ObjectKeyFromObject(s.vmi))["hp-volume-1"]
			if !strings.Contains(said, tc.says) || (said == "") != (tc.says == "") {
				t.Errorf("it says %q, want %q", said, tc.says)
			}
			close(recorder.Events)
			var warnings []string
			for event := range recorder.Events {
				if strings.HasPrefix(event, corev1.EventTypeWarning) {
					warnings = append(warnings, event)
				}
			}
			if (len(warnings) == 1) != (tc.says != "") || len(warnings) > 1 {
				t.Errorf("events %q", warnings)
			}
		})
	}
}

// TestTheReportIsEachVMIsOwn: the level comes from the VMI's own status.
func TestTheReportIsEachVMIsOwn(t *testing.T) {
	s, node := onNode(true, v1.Running, launcherContext)
	other, _ := onNode(true, v1.Running, "")
	other.vmi.Name = "other"
	cluster := clientOf(t, node, s.vmi)
	r := &Reconciler{Client: cluster, Reader: cluster, Recorder: events.NewFakeRecorder(10), Now: time.Now}
	if options, err := r.selinuxOptions(t.Context(), other, nil); !errors.Is(err, selinux.ErrUnknown) {
		t.Errorf("options %v, %v", options, err)
	}
}
