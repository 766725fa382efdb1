//go:build apiserver

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugpod"
	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/migration/volumemigration"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

func (w *plugWorld) record() hotplug.Record {
	w.t.Helper()
	record, err := hotplug.ReadRecord(w.vmi("vmi").Annotations)
	w.do("reading the record", err)
	return record
}

// awaitRecord waits for a record with that many pods at the source, and that many at the target, all with their UIDs.
func (w *plugWorld) awaitRecord(here, there int) hotplug.Record {
	w.t.Helper()
	var record hotplug.Record
	w.eventually(fmt.Sprintf("%d pods here and %d there to be recorded", here, there), func() (bool, string) {
		record = w.record()
		all := record.Pods
		if record.Incoming != nil {
			all = slices.Concat(all, record.Incoming.Pods)
		}
		unknown := slices.ContainsFunc(all, func(h hotplug.AttachmentPod) bool { return h.UID == "" })
		return len(record.Pods) == here && len(all) == here+there && !unknown, fmt.Sprintf("it is %s", record.Text())
	})
	return record
}

// comes reports whether a record has exactly this pod at the target of migration m.
func comes(record hotplug.Record, m *v1.VirtualMachineInstanceMigration, pod *corev1.Pod) bool {
	in := record.Incoming
	return in != nil && in.Migration == m.UID && len(in.Pods) == 1 && in.Pods[0].Name == pod.Name && in.Pods[0].UID == pod.UID
}

func (w *plugWorld) startElsewhere(pod *corev1.Pod) {
	w.t.Helper()
	if node := hotplugpod.Node(pod); node != otherNode {
		w.t.Errorf("pod %s is for node %s, not %s", pod.Name, node, otherNode)
	}
	w.bindTo(pod, otherNode)
	w.runs(pod)
}

func (w *plugWorld) expectOwner(pod, launcher *corev1.Pod) {
	w.t.Helper()
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != launcher.UID {
		w.t.Errorf("pod %s belongs to %+v, not to the launcher pod %s", pod.Name, owner, launcher.Name)
	}
}

// travels is a guest with volume a, and a migration that is about to prepare its target.
type travels struct {
	*plugWorld
	source, target *corev1.Pod
	// first is the attachment pod at the source, next the one at the target.
	first, next *corev1.Pod
	migration   *v1.VirtualMachineInstanceMigration
}

// newTravels brings a guest to that point, and calls between after each step.
func newTravels(t *testing.T, between func(*plugWorld)) *travels {
	t.Helper()
	return newTravelsAfter(t, func(*plugWorld) {}, between)
}

// newTravelsAfter does so after calling before, which precedes the migration.
func newTravelsAfter(t *testing.T, before, between func(*plugWorld)) *travels {
	t.Helper()
	w := newPlugWorld(t)
	w.claim("a", "")
	w.add("a")
	first := w.awaitAttachmentPods(1)[0]
	w.plug(&first)
	w.awaitRecord(1, 0)
	source := w.awaitLauncher("vmi")
	w.expectOwner(&first, source)
	before(w)
	m := w.migrate("move", "vmi")
	target := w.bringTo(m, v1.MigrationPreparingTarget, otherNode)
	between(w)
	next := w.awaitAttachmentPods(2)[1]
	w.expectOwner(&next, target)
	if record := w.record(); record.Incoming == nil || record.Incoming.Migration != m.UID || !record.Names(next.Name) {
		t.Errorf("pod %s was made, and the record is %s", next.Name, record.Text())
	}
	between(w)
	w.startElsewhere(&next)
	if record := w.awaitRecord(1, 1); !comes(record, m, &next) || !record.Has(first.Name, first.UID) {
		t.Errorf("pod %s runs, and the record is %s", next.UID, record.Text())
	}
	between(w)
	return &travels{plugWorld: w, source: source, target: target, first: &first, next: &next, migration: m}
}

// TestAVolumesPodComesBeforeItsGuestAndGoesAfterIt: the attachment pod at the target must run before the guest
// moves, and the one at the source stay until it has.
func TestAVolumesPodComesBeforeItsGuestAndGoesAfterIt(t *testing.T) {
	for name, between := range map[string]func(*plugWorld){
		"under one leader":                func(w *plugWorld) { w.awaitSettled() },
		"under a new leader at each step": func(w *plugWorld) { w.restartLoops() },
	} {
		t.Run(name, func(t *testing.T) {
			g := newTravels(t, between)
			g.targetSays(g.migration, vmistatus.TargetMigration{Address: "10.0.0.2:49152"})
			g.awaitMigration("move", v1.MigrationTargetReady)
			g.sourceSays(g.migration, vmistatus.SourceMigration{Begins: true})
			g.awaitMigration("move", v1.MigrationRunning)
			g.targetSays(g.migration, vmistatus.TargetMigration{Runs: true})
			g.awaitMigration("move", v1.MigrationSucceeded)
			g.awaitRecord(2, 0)
			between(g.plugWorld)
			g.setVolume("a", v1.VolumeReady, g.next)
			if record := g.awaitRecord(1, 0); !record.Has(g.next.Name, g.next.UID) {
				t.Errorf("the volume is in the guest through %s, and the record is %s", g.next.Name, record.Text())
			}
			g.awaitSettled()
			if g.deleting(g.first) {
				t.Errorf("pod %s is deleted while the source's launcher pod may have the volume open", g.first.Name)
			}
			between(g.plugWorld)
			g.endContainer(g.source, launch.Exit{Reason: launch.ReasonMigrated})
			g.awaitPodDeletion(g.source)
			g.awaitNoAttachmentPod(g.first)
			g.removePod(g.source)
			g.awaitSettled()
			if g.deleting(g.next) {
				t.Errorf("pod %s is deleted, from which the guest has its volume", g.next.Name)
			}
			g.unplug("a")
			g.awaitNoAttachmentPod(g.next)
			g.awaitNoVolume("a")
			g.awaitHistory(2, 0)
		})
	}
}

// TestAVolumeComesToAnotherClaimWithItsGuest: the target's pod must have the copy's claim, and the VMI get claim
// and pod with its new node.
func TestAVolumeComesToAnotherClaimWithItsGuest(t *testing.T) {
	g := newTravelsAfter(t, func(w *plugWorld) {
		w.claim("x", "")
		w.edit(func(vmi *v1.VirtualMachineInstance) {
			vmi.Status.MigratedVolumes = volumemigration.Write([]volumemigration.Move{{Volume: "a", From: "a", To: "x"}})
		})
	}, func(w *plugWorld) { w.awaitSettled() })
	for pod, want := range map[*corev1.Pod]string{g.first: "a", g.next: "x"} {
		if got := pod.Spec.Volumes[0].PersistentVolumeClaim; got == nil || got.ClaimName != want {
			t.Errorf("pod %s has %+v, want the claim %s", pod.Name, got, want)
		}
	}
	on := func(claim string, pod *corev1.Pod) {
		t.Helper()
		g.eventually("the volume on the claim "+claim, func() (bool, string) {
			vmi, s := g.vmi("vmi"), g.volume("a")
			named := hotplug.VolumesOf(&vmi.Spec)[0].Claim
			info := s.PersistentVolumeClaimInfo
			return named == claim && info.ClaimName == claim && len(info.AccessModes) > 0 && s.HotplugVolume.AttachPodUID == pod.UID,
				fmt.Sprintf("the spec names %s, the status is %+v", named, s)
		})
	}
	on("a", g.first)
	g.targetSays(g.migration, vmistatus.TargetMigration{Address: "10.0.0.2:49152"})
	g.awaitMigration("move", v1.MigrationTargetReady)
	g.sourceSays(g.migration, vmistatus.SourceMigration{Begins: true})
	g.awaitMigration("move", v1.MigrationRunning)
	on("a", g.first)
	g.targetSays(g.migration, vmistatus.TargetMigration{Runs: true})
	g.awaitMigration("move", v1.MigrationSucceeded)
	on("x", g.next)
	if record := g.awaitRecord(1, 0); !record.Has(g.next.Name, g.next.UID) {
		t.Errorf("the guest has come to %s, and the record is %s", g.next.Name, record.Text())
	}
	g.awaitSettled()
	if g.deleting(g.first) {
		t.Errorf("pod %s is deleted while the source's launcher pod may have the volume open", g.first.Name)
	}
	g.endContainer(g.source, launch.Exit{Reason: launch.ReasonMigrated})
	g.awaitPodDeletion(g.source)
	g.awaitNoAttachmentPod(g.first)
	g.awaitSettled()
	if g.deleting(g.next) {
		t.Errorf("pod %s is deleted, from which the guest has its volume", g.next.Name)
	}
}

// TestAVolumesPodsOfAMigrationThatIsCanceled: the target's attachment pod must go after its launcher pod, and the
// source's stay.
func TestAVolumesPodsOfAMigrationThatIsCanceled(t *testing.T) {
	g := newTravels(t, func(w *plugWorld) { w.awaitSettled() })
	// A deleted pod is replaced.
	g.history.DeleteExternally(string(g.next.UID))
	g.do("deleting a pod by hand", g.client.Delete(g.ctx, g.next))
	third := g.awaitAttachmentPods(3)[2]
	g.startElsewhere(&third)
	g.removePod(g.next)
	if record := g.awaitRecord(1, 1); !comes(record, g.migration, &third) {
		t.Errorf("pod %s was replaced by %s, and the record is %s", g.next.Name, third.Name, record.Text())
	}
	g.do("canceling", g.client.Delete(g.ctx, g.migration))
	g.awaitStaying("vmi", g.source, g.target)
	g.awaitSettled()
	if g.deleting(&third) {
		t.Errorf("pod %s is deleted while the target's QEMU may have the volume open", third.Name)
	}
	g.finishPod(g.target)
	g.awaitNoAttachmentPod(&third)
	g.awaitMigrationGone("move")
	if record := g.awaitRecord(1, 0); !record.Has(g.first.Name, g.first.UID) {
		t.Errorf("the guest stays with %s, and the record is %s", g.first.Name, record.Text())
	}
	if g.deleting(g.first) {
		t.Error("the pod from which the guest has its volume is deleted")
	}
	if s := g.volume("a"); s.Phase != v1.VolumeReady || s.HotplugVolume.AttachPodUID != g.first.UID {
		t.Errorf("the volume is %+v", s)
	}
	// The guest can migrate again.
	again := g.migrate("again", "vmi")
	g.bringTo(again, v1.MigrationPreparingTarget, otherNode)
	fourth := g.awaitAttachmentPods(2)[1]
	g.startElsewhere(&fourth)
	if record := g.awaitRecord(1, 1); !comes(record, again, &fourth) {
		t.Errorf("pod %s runs for the second migration, and the record is %s", fourth.UID, record.Text())
	}
}

// TestAMigrationWaitsForVolumesThatComeOrGo plugs a volume: a migration must begin only when the guest has it.
func TestAMigrationWaitsForVolumesThatComeOrGo(t *testing.T) {
	w := newPlugWorld(t)
	w.claim("a", "")
	w.add("a")
	pod := w.awaitAttachmentPods(1)[0]
	w.start(&pod)
	w.awaitVolume("a", v1.HotplugVolumeAttachedToNode)
	w.migrate("move", "vmi")
	w.eventually("the migration to wait for the volume", func() (bool, string) {
		m := w.migration("move")
		c := condition.Find(m.Status.Conditions, migration.ConditionWaiting)
		return c != nil && c.Status == corev1.ConditionTrue && c.Reason == migration.ReasonVolumes && strings.Contains(c.Message, "(a)"),
			fmt.Sprintf("%+v", m.Status)
	})
	w.awaitSettled()
	if n := len(w.pods()); n != 2 {
		t.Errorf("there are %d pods; a target pod was made too early", n)
	}
	w.setVolume("a", v1.HotplugVolumeMounted, nil)
	w.setVolume("a", v1.VolumeReady, nil)
	target := w.bringTo(w.migration("move"), v1.MigrationPreparingTarget, otherNode)
	next := w.awaitAttachmentPods(2)[1]
	w.startElsewhere(&next)
	w.awaitRecord(1, 1)
	// From now on no volume is plugged or unplugged.
	w.claim("b", "")
	w.add("b")
	w.remove("a")
	w.awaitSettled()
	if pods := w.attachmentPods(); len(pods) != 2 || w.deleting(&pod) || w.volume("b") != nil || w.volume("a").Phase != v1.VolumeReady {
		t.Errorf("while the guest moves there are %d pods, and its volumes are %+v", len(pods), w.vmi("vmi").Status.VolumeStatus)
	}
	w.do("canceling", w.client.Delete(w.ctx, w.migration("move")))
	w.awaitPodDeletion(target)
	w.finishPod(target)
	w.awaitMigrationGone("move")
	w.awaitNoAttachmentPod(&next)
	w.awaitAttachmentPods(2)
	w.awaitVolume("b", v1.VolumeBound)
}

// TestAMigrationTellsWhatKeepsVolumesFromItsTarget has a kubelet that can't mount. Its message must be on the migration
// while it waits, and in the reason when it is given up.
func TestAMigrationTellsWhatKeepsVolumesFromItsTarget(t *testing.T) {
	w := newPlugWorld(t)
	w.claim("a", "")
	w.add("a")
	first := w.awaitAttachmentPods(1)[0]
	w.plug(&first)
	w.awaitRecord(1, 0)
	m := w.migrate("move", "vmi")
	target := w.bringTo(m, v1.MigrationPreparingTarget, otherNode)
	next := w.awaitAttachmentPods(2)[1]
	w.bindTo(&next, otherNode)
	const complaint = "MountVolume.SetUp failed for volume a"
	w.complain(&next, complaint)
	want := "the attachment pod " + next.Name + " does not start: FailedMount: " + complaint
	w.goesBy(time.Minute)
	w.eventually("the migration to tell what it waits for", func() (bool, string) {
		m := w.migration("move")
		c := condition.Find(m.Status.Conditions, migration.ConditionWaiting)
		return c != nil && c.Reason == migration.ReasonNotAttached && strings.HasSuffix(c.Message, "(a) are not attached to node "+otherNode+" yet: "+want),
			fmt.Sprintf("%+v", m.Status)
	})
	w.goesBy(6 * time.Minute)
	m = w.awaitMigration("move", v1.MigrationFailed)
	w.awaitPodDeletion(target)
	w.finishPod(target)
	if ms := m.Status.MigrationState; !strings.Contains(ms.FailureReason, want) {
		t.Errorf("the migration has failed because %q, want %q", ms.FailureReason, want)
	}
	w.awaitNoAttachmentPod(&next)
	if s := w.volume("a"); s.Phase != v1.VolumeReady || w.deleting(&first) {
		t.Errorf("the guest stays, and its volume is %+v", s)
	}
}
