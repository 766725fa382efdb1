package rivals

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// indexer adds a manager's indexes to a cache for tests.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, object client.Object, field string, extract client.IndexerFunc) error {
	i.WithIndex(object, field, extract)
	return nil
}

func onClaim(name string, uid types.UID) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Namespace, vmi.Name, vmi.UID = "shop", name, uid
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "disk"}}
	vmi.Spec.Volumes = []v1.Volume{{Name: "disk", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "data"}}}}
	return vmi
}

func podOf(vmi *v1.VirtualMachineInstance) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = vmi.Namespace, launcherpod.Name(vmi), "pod-of-"+vmi.UID
	pod.Labels = map[string]string{
		v1.AppLabel: layout.LauncherApp, v1.CreatedByLabel: string(vmi.UID),
		launcherpod.NameLabel: launcherpod.NameLabelValue(vmi.Name), launcherpod.ClaimLabel("data"): "",
	}
	pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning
	vmi.Status.ActivePods = map[types.UID]string{pod.UID: "node"}
	return pod
}

func TestRivalsAreFoundWithoutTheirLabels(t *testing.T) {
	without := func(labels ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, label := range labels {
				delete(p.Labels, label)
			}
		}
	}
	claim := launcherpod.ClaimLabel("data")
	for name, c := range map[string]struct {
		// of is the VMI whose guest runs; gone means that its object is deleted.
		of   string
		gone bool
		lost func(*corev1.Pod)
		want int
		// waiting counts the VMIs on the claim without a pod.
		waiting int
	}{
		"another VM's guest":                                   {"other", false, without(), 1, 0},
		"another VM's, whose pod does not name the claim":      {"other", false, without(claim), 1, 0},
		"another VM's, whose pod says no more what it is":      {"other", false, without(v1.AppLabel), 1, 0},
		"another VM's, whose pod says nothing any more":        {"other", false, without(v1.AppLabel, v1.CreatedByLabel, claim, launcherpod.NameLabel), 1, 0},
		"another VM's, unlabeled, and many that wait":          {"other", false, without(v1.AppLabel, claim, launcherpod.NameLabel), 1, 500},
		"an earlier guest of the VM":                           {"web", true, without(), 1, 0},
		"an earlier one, whose pod does not name its VM":       {"web", true, without(launcherpod.NameLabel, claim), 1, 0},
		"another VM's guest that has ended":                    {"other", false, func(p *corev1.Pod) { without(claim)(p); p.Status.Phase = corev1.PodSucceeded }, 0, 0},
		"an earlier guest that has ended":                      {"web", true, func(p *corev1.Pod) { without(launcherpod.NameLabel)(p); p.Status.Phase = corev1.PodFailed }, 0, 0},
		"another VM's pod that waits for a node, unlabeled":    {"other", false, func(p *corev1.Pod) { without(claim)(p); p.Spec.NodeName = "" }, 0, 0},
		"a guest whose VMI is gone too: nobody knows its disk": {"other", true, without(claim), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, corev1.AddToScheme} {
				if err := add(scheme); err != nil {
					t.Fatal(err)
				}
			}
			b := fake.NewClientBuilder().WithScheme(scheme)
			for _, register := range []func(context.Context, client.FieldIndexer) error{claimusers.Register, Register} {
				if err := register(t.Context(), indexer{b}); err != nil {
					t.Fatal(err)
				}
			}
			asks, other := onClaim("web", "new"), onClaim(c.of, "old")
			pod := podOf(other)
			c.lost(pod)
			objects := []client.Object{asks, pod}
			for i := range c.waiting {
				objects = append(objects, onClaim(fmt.Sprint("waits-", i), types.UID(fmt.Sprint("uid-", i))))
			}
			if !c.gone {
				objects = append(objects, other)
			}
			cluster := b.WithObjects(objects...).Build()
			asked := 0
			reader := interceptor.NewClient(cluster, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					asked++
					return c.Get(ctx, key, object, options...)
				},
			})
			found, err := Ask(t.Context(), reader, cluster, Question{
				Namespace: "shop", Name: "web", SameName: true, Claims: []string{"data"},
				Judge: func(pod *corev1.Pod) (vmicontroller.Rival, bool) { return vmicontroller.RivalOf(asks, pod) },
			})
			if err != nil || len(found) != c.want {
				t.Errorf("found %+v (%v), want %d", found, err, c.want)
			}
			if asked > manyPods {
				t.Errorf("the API server was asked for %d pods", asked)
			}
		})
	}
}
