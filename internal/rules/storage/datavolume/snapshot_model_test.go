package datavolume

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/propertytest"
)

// elsewhere is a cluster with a DataVolume of a snapshot in another namespace, where owner references do not work.
// Caches lag, the controller dies between two actions, and users delete objects.
type elsewhere struct {
	dvs              history[cdiv1.DataVolume]
	claims, restored history[corev1.PersistentVolumeClaim]
	workers, readers history[corev1.Pod]
	snapshotGone     bool
	// filled means that a worker has copied all.
	filled bool
	made   int
	now    time.Time
}

func newElsewhere() *elsewhere {
	m := &elsewhere{now: noon}
	dv := ofSnapshot("golden", file, device, true).DataVolume
	dv.ResourceVersion = "0"
	m.dvs.write(dv)
	m.claims.write(nil)
	m.restored.write(nil)
	m.workers.write(nil)
	m.readers.write(nil)
	return m
}

// The API server is asked before the DataVolume loses its finalizer.
func (m *elsewhere) observed(t *rapid.T) Observed {
	o := Observed{
		DataVolume: m.dvs.cached(t, "dv"), Claim: m.claims.cached(t, "claim"), Worker: m.workers.cached(t, "worker"),
		SourcePod: m.readers.cached(t, "reader"), Restored: m.restored.cached(t, "restored"),
	}
	if dv := o.DataVolume; dv != nil && hasFinalizer(dv) && (Ended(dv) || dv.DeletionTimestamp != nil) {
		o.SourcePod, o.Restored = m.readers.last(), m.restored.last()
	}
	return o
}

func (m *elsewhere) newest() Observed {
	return Observed{DataVolume: m.dvs.last(), Claim: m.claims.last(), Worker: m.workers.last(), SourcePod: m.readers.last(), Restored: m.restored.last()}
}

// controller is one round of the loop, cut off after budget actions.
func (m *elsewhere) controller(t *rapid.T, o Observed, budget int) {
	if o.DataVolume == nil {
		return
	}
	like := ofSnapshot("golden", file, device, true)
	o.Class, o.Config, o.Now, o.Source = like.Class, like.Config, m.now, like.Source
	o.Source.SnapshotExists = !m.snapshotGone
	current := func() bool {
		return m.dvs.last() != nil && m.dvs.last().ResourceVersion == o.DataVolume.ResourceVersion
	}
	plan := Decide(o)
	for ; plan.Needs != ""; plan = Decide(o) {
		switch plan.Needs {
		case NeedDataVolume:
			if o.Confirmed = current(); !o.Confirmed {
				return
			}
		case NeedProgress:
			o.Progress = &transfer.Progress{}
		case NeedWarning:
			o.WarningAsked = true
		case NeedUsers:
			o.UsersAsked = true
		case NeedWriters:
			t.Fatal("it asks who writes to a claim that is its own")
		}
	}
	m.apply(t, o, plan, budget, current)
}

func (m *elsewhere) apply(t *rapid.T, o Observed, plan Plan, budget int, current func() bool) {
	if plan.AddFinalizer {
		m.writeDV(current, &budget, func(dv *cdiv1.DataVolume) { dv.Finalizers = []string{Finalizer} })
		return
	}
	m.create(t, plan, o.DataVolume, &budget)
	if fmt.Sprint(plan.Status) != fmt.Sprint(o.DataVolume.Status) {
		wrote := m.writeDV(current, &budget, func(dv *cdiv1.DataVolume) { dv.Status = plan.Status })
		if !wrote {
			return
		}
		if plan.Status.Phase == cdiv1.Succeeded && !m.filled {
			t.Fatal("Succeeded, and nothing was copied")
		}
		o.DataVolume = m.dvs.last()
	}
	if plan.DeleteWorker && spend(&budget) {
		terminate(&m.workers, m.now)
	}
	if plan.DeleteSourcePod && spend(&budget) {
		terminate(&m.readers, m.now)
	}
	if plan.DeleteRestored && spend(&budget) {
		m.deleteRestored()
	}
	if plan.RemoveFinalizer {
		m.writeDV(current, &budget, func(dv *cdiv1.DataVolume) { dv.Finalizers = nil })
	}
}

func (m *elsewhere) create(t *rapid.T, plan Plan, dv *cdiv1.DataVolume, budget *int) {
	held := func(what string) {
		if !hasFinalizer(dv) || Ended(m.dvs.last()) {
			t.Fatalf("%s is made for a DataVolume that may be gone before it, or has ended: %+v", what, m.dvs.last())
		}
	}
	if plan.CreateClaim != nil && spend(budget) && m.claims.last() == nil {
		claim := plan.CreateClaim.DeepCopy()
		claim.Status.Phase = corev1.ClaimPending
		m.claims.write(claim)
	}
	if plan.CreateRestored != nil && spend(budget) && m.restored.last() == nil {
		held("a claim in the other namespace")
		claim := plan.CreateRestored.DeepCopy()
		claim.Status.Phase = corev1.ClaimPending
		m.restored.write(claim)
	}
	if plan.CreateWorker != nil && spend(budget) && m.workers.last() == nil {
		m.workers.write(m.pod(dv))
	}
	if plan.CreateSourcePod != nil && spend(budget) && m.readers.last() == nil {
		held("a pod in the other namespace")
		m.readers.write(m.pod(dv))
	}
}

func (m *elsewhere) pod(dv *cdiv1.DataVolume) *corev1.Pod {
	m.made++
	pod := podOf(dv, corev1.PodStatus{Phase: corev1.PodPending})
	pod.UID = types.UID(fmt.Sprintf("pod-%d", m.made))
	return pod
}

// writeDV writes on condition that nobody has written since; a DataVolume that is being deleted disappears with its
// last finalizer.
func (m *elsewhere) writeDV(current func() bool, budget *int, edit func(*cdiv1.DataVolume)) bool {
	if !spend(budget) || !current() {
		return false
	}
	dv := m.dvs.last().DeepCopy()
	edit(dv)
	dv.ResourceVersion = fmt.Sprint(len(m.dvs.versions))
	if dv.DeletionTimestamp != nil && len(dv.Finalizers) == 0 {
		dv = nil
	}
	m.dvs.write(dv)
	return dv != nil
}

func terminate(pods *history[corev1.Pod], now time.Time) {
	if pod := pods.last(); pod != nil && pod.DeletionTimestamp == nil {
		pod = pod.DeepCopy()
		pod.DeletionTimestamp = &metav1.Time{Time: now}
		pods.write(pod)
	}
}

func (m *elsewhere) deleteRestored() {
	if claim := m.restored.last(); claim != nil && claim.DeletionTimestamp == nil {
		claim = claim.DeepCopy()
		claim.DeletionTimestamp = &metav1.Time{Time: m.now}
		m.restored.write(claim)
	}
}

func (m *elsewhere) deleteDV() {
	dv := m.dvs.last()
	switch {
	case dv == nil:
	case len(dv.Finalizers) == 0:
		m.dvs.write(nil)
	default:
		dv = dv.DeepCopy()
		dv.DeletionTimestamp, dv.ResourceVersion = &metav1.Time{Time: m.now}, fmt.Sprint(len(m.dvs.versions))
		m.dvs.write(dv)
	}
}

// bind plays the driver, which makes the volumes of both claims.
func (m *elsewhere) bind() {
	for _, claims := range []*history[corev1.PersistentVolumeClaim]{&m.claims, &m.restored} {
		if claim := claims.last(); claim != nil && claim.Status.Phase != corev1.ClaimBound {
			claim = claim.DeepCopy()
			claim.Status.Phase = corev1.ClaimBound
			claims.write(claim)
		}
	}
}

// When both pods run and the reader has its claim, the worker ends.
func (m *elsewhere) copies() {
	run := func(pods *history[corev1.Pod], status corev1.PodStatus) {
		if pod := pods.last(); pod != nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			pod = pod.DeepCopy()
			pod.Status = status
			pods.write(pod)
		}
	}
	worker, reader, restored := m.workers.last(), m.readers.last(), m.restored.last()
	// The scheduler gives no node to a pod with a claim that is being deleted.
	if restored != nil && restored.DeletionTimestamp == nil {
		run(&m.readers, running())
	}
	if worker != nil && worker.Status.Phase == corev1.PodRunning && reader != nil && reader.Status.Phase == corev1.PodRunning &&
		restored != nil && restored.Status.Phase == corev1.ClaimBound {
		run(&m.workers, completed())
		m.filled = true
		return
	}
	run(&m.workers, running())
}

// removed deletes terminating objects and those that have lost their owner. A claim is protected as long as a pod with
// a node has it.
func (m *elsewhere) removed() {
	gone := m.dvs.last() == nil
	if pod := m.workers.last(); pod != nil && (gone || pod.DeletionTimestamp != nil) {
		m.workers.write(nil)
	}
	if pod := m.readers.last(); pod != nil && pod.DeletionTimestamp != nil {
		m.readers.write(nil)
	}
	if claim := m.restored.last(); claim != nil && claim.DeletionTimestamp != nil && (m.readers.last() == nil || m.readers.last().Status.Phase == corev1.PodPending) {
		m.restored.write(nil)
	}
	if m.claims.last() != nil && gone && m.workers.last() == nil {
		m.claims.write(nil)
	}
}

// A copied snapshot must leave nothing in its namespace, whatever dies and whatever users delete in the middle.
func TestNothingOfACopiedSnapshotIsLeftBehind(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		m := newElsewhere()
		rarely := func(do func()) func(*rapid.T) {
			return func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "luck") == 0 {
					do()
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"controller":                  func(t *rapid.T) { m.controller(t, m.observed(t), rapid.IntRange(0, 4).Draw(t, "budget")) },
			"driver":                      func(*rapid.T) { m.bind() },
			"kubelet":                     func(*rapid.T) { m.copies() },
			"removal":                     func(*rapid.T) { m.removed() },
			"clock":                       func(*rapid.T) { m.now = m.now.Add(3 * time.Second) },
			"somebody deletes the worker": func(*rapid.T) { terminate(&m.workers, m.now) },
			"somebody deletes the reader": func(*rapid.T) { terminate(&m.readers, m.now) },
			"the reader is evicted": rarely(func() {
				if pod := m.readers.last(); pod != nil && pod.Status.Phase == corev1.PodRunning {
					pod = pod.DeepCopy()
					pod.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
					m.readers.write(pod)
				}
			}),
			"somebody deletes what is restored": func(*rapid.T) { m.deleteRestored() },
			"the snapshot is deleted":           rarely(func() { m.snapshotGone = true }),
			"the DataVolume is deleted":         rarely(m.deleteDV),
			"":                                  func(*rapid.T) {},
		})
		for range 80 {
			m.controller(t, m.newest(), 9)
			m.removed()
			m.bind()
			m.copies()
			m.now = m.now.Add(3 * time.Second)
		}
		m.rests(t)
		// Whatever version a cache may still show, nothing may be made any more.
		for _, dv := range m.dvs.versions {
			o := m.newest()
			if o.DataVolume = dv; m.dvs.last() == nil || Ended(m.dvs.last()) {
				m.controller(t, o, 9)
			}
		}
		m.rests(t)
	})
}

func (m *elsewhere) rests(t *rapid.T) {
	dv := m.dvs.last()
	switch {
	case dv == nil || Ended(dv):
		if m.restored.last() != nil || m.readers.last() != nil || m.workers.last() != nil {
			t.Fatalf("left are the claim %v, the reader %v and the worker %v of %+v", m.restored.last(), m.readers.last(), m.workers.last(), dv)
		}
		if dv != nil && len(dv.Finalizers) > 0 {
			t.Fatalf("the DataVolume keeps %v", dv.Finalizers)
		}
	case !m.snapshotGone:
		t.Fatalf("the DataVolume rests in phase %s: %+v", dv.Status.Phase, dv.Status.Conditions)
	case !slices.Contains([]cdiv1.DataVolumePhase{cdiv1.Pending, cdiv1.PVCBound, cdiv1.CloneScheduled, cdiv1.CloneInProgress}, dv.Status.Phase):
		t.Fatalf("without its snapshot the DataVolume rests in phase %s", dv.Status.Phase)
	}
}
