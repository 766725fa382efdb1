//go:build apiserver

package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/vm/commontypes"
)

// The loops of every test make the common types.
func removeCommonTypes(c client.Client) error {
	ours := client.MatchingLabels{commontypes.VendorLabel: commontypes.Vendor}
	return errors.Join(
		c.DeleteAllOf(context.Background(), &instancetypev1.VirtualMachineClusterInstancetype{}, ours),
		c.DeleteAllOf(context.Background(), &instancetypev1.VirtualMachineClusterPreference{}, ours))
}

func (w *world) commonTypes() (types map[string]*instancetypev1.VirtualMachineClusterInstancetype, preferences int) {
	w.t.Helper()
	var list instancetypev1.VirtualMachineClusterInstancetypeList
	w.do("listing the instance types", w.client.List(w.ctx, &list))
	types = map[string]*instancetypev1.VirtualMachineClusterInstancetype{}
	for i := range list.Items {
		types[list.Items[i].Name] = &list.Items[i]
	}
	var preferred instancetypev1.VirtualMachineClusterPreferenceList
	w.do("listing the preferences", w.client.List(w.ctx, &preferred))
	return types, len(preferred.Items)
}

func (w *world) awaitCommonTypes(types, preferences int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d instance types and %d preferences", types, preferences), func() (bool, string) {
		gotTypes, gotPreferences := w.commonTypes()
		return len(gotTypes) == types && gotPreferences == preferences, fmt.Sprintf("there are %d and %d", len(gotTypes), gotPreferences)
	})
}

func (w *world) commonWrites() []string {
	w.writes.mu.Lock()
	defer w.writes.mu.Unlock()
	var out []string
	for _, line := range w.writes.lines {
		if strings.Contains(line, "/virtualmachinecluster") {
			out = append(out, line)
		}
	}
	return out
}

// commonEffects counts the writes with an effect, starting at index from, which must all have one method. The others
// are writes of objects that the cache does not show yet.
func (w *world) commonEffects(from int, method string) int {
	w.t.Helper()
	effects := 0
	for _, line := range w.commonWrites()[from:] {
		fields := strings.Fields(line)
		if fields[0] != method {
			w.t.Errorf("a write: %s", line)
		} else if strings.HasPrefix(fields[2], "2") {
			effects++
		}
	}
	return effects
}

func (w *world) sayCommonTypes(wanted bool) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"configuration":{"commonInstancetypesDeployment":{"enabled":%t}}}}`, wanted)
	w.do("changing the KubeVirt object", w.client.Patch(w.ctx, w.kubevirt(), client.RawPatch("application/merge-patch+json", patch)))
}

// Without a KubeVirt object the common types must exist. One write restores a missing one, and a restarted loop must
// write nothing.
func TestTheClusterHasTheCommonTypes(t *testing.T) {
	all, preferences := len(commontypes.Instancetypes()), len(commontypes.Preferences())
	w := newWorld(t)
	w.awaitCommonTypes(all, preferences)
	w.awaitSettled()
	w.stop()
	w.do("removing all", removeCommonTypes(w.client))
	before := len(w.commonWrites())
	w.startLoops()
	w.awaitCommonTypes(all, preferences)
	w.awaitSettled()
	if created := w.commonEffects(before, "POST"); created != all+preferences {
		t.Errorf("%d objects were created, want %d", created, all+preferences)
	}

	w.stop()
	before = len(w.commonWrites())
	w.startLoops()
	one := &instancetypev1.VirtualMachineClusterInstancetype{ObjectMeta: metav1.ObjectMeta{Name: "u1.medium"}}
	w.do("deleting a type", w.client.Delete(w.ctx, one))
	w.awaitCommonTypes(all, preferences)
	w.awaitSettled()
	if created := w.commonEffects(before, "POST"); created != 1 {
		t.Errorf("after a new start and the loss of one type there were the writes %q", w.commonWrites()[before:])
	}
}

// Objects that others made or changed must stay, with an event.
func TestTheCommonTypesAreTurnedOff(t *testing.T) {
	all, preferences := len(commontypes.Instancetypes()), len(commontypes.Preferences())
	w := newWorld(t)
	w.awaitCommonTypes(all, preferences)
	w.stop()
	types, _ := w.commonTypes()
	types["u1.nano"].Spec.CPU.Guest = 7
	w.do("changing a type", w.client.Update(w.ctx, types["u1.nano"]))
	w.do("deleting a type", w.client.Delete(w.ctx, types["u1.large"]))
	theirs := &instancetypev1.VirtualMachineClusterInstancetype{ObjectMeta: metav1.ObjectMeta{Name: "u1.large"}, Spec: types["u1.nano"].Spec}
	copied := &instancetypev1.VirtualMachineClusterInstancetype{
		ObjectMeta: metav1.ObjectMeta{Name: "my.medium", Labels: types["u1.medium"].Labels, Annotations: types["u1.medium"].Annotations},
		Spec:       types["u1.medium"].Spec,
	}
	for _, object := range []client.Object{theirs, copied} {
		w.do("making "+object.GetName(), w.client.Create(w.ctx, object))
		t.Cleanup(func() { _ = w.client.Delete(w.cleanup(), object) })
	}

	before := len(w.commonWrites())
	w.startLoops()
	w.awaitSettled()
	// Observations from before there was an object for the event must be reported then.
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: clusterconfig.Name, Namespace: w.namespace}}
	w.do("creating the KubeVirt object", w.client.Create(w.ctx, kv))
	w.awaitLeft("VirtualMachineClusterInstancetype left as somebody has changed them: u1.nano; left as others have made them: u1.large; " +
		"delete those that are to be as they come with Drydock")
	w.awaitSettled()
	if writes := w.commonWrites()[before:]; len(writes) != 0 {
		t.Errorf("there were the writes %q", writes)
	}

	w.sayCommonTypes(false)
	w.awaitCommonTypes(3, 0)
	w.awaitSettled()
	now, _ := w.commonTypes()
	for _, name := range []string{"u1.nano", "u1.large", "my.medium"} {
		if now[name] == nil {
			t.Errorf("%s is gone", name)
		}
	}
	if deleted := w.commonEffects(before, "DELETE"); deleted != all+preferences-2 {
		t.Errorf("%d objects were deleted, want %d", deleted, all+preferences-2)
	}

	w.do("deleting the changed type", w.client.Delete(w.ctx, now["u1.nano"]))
	w.sayCommonTypes(true)
	w.awaitCommonTypes(all+1, preferences)
	w.awaitSettled()
	if now, _ = w.commonTypes(); now["u1.nano"].Spec.CPU.Guest != 1 || now["u1.large"].Spec.CPU.Guest != 7 {
		t.Errorf("u1.nano has %d CPUs and somebody's u1.large %d", now["u1.nano"].Spec.CPU.Guest, now["u1.large"].Spec.CPU.Guest)
	}
}

// awaitLeft waits for the event about the objects that stay; it must exist once.
func (w *world) awaitLeft(note string) {
	w.t.Helper()
	w.eventually("the event about what is left", func() (bool, string) {
		var list corev1.EventList
		w.do("listing events", w.client.List(w.ctx, &list, client.InNamespace(w.namespace)))
		var notes []string
		for i := range list.Items {
			if list.Items[i].Reason == "CommonInstancetypesLeft" {
				notes = append(notes, list.Items[i].Message)
			}
		}
		return len(notes) == 1 && notes[0] == note, fmt.Sprintf("%q", notes)
	})
}
