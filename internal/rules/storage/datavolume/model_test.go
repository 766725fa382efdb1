package datavolume

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"pgregory.net/rapid"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/propertytest"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
)

// model is a cluster with one DataVolume, in which all events may happen at any time: caches lag, the controller dies
// between two actions, and the driver, the kubelet and users act. It checks the invariants after each step, and at the
// end that the cluster comes to rest.
type model struct {
	// Stored versions; the last one is current, and nil means "does not exist". Caches may show any from the last
	// seen one on.
	dvs    history[cdiv1.DataVolume]
	claims history[corev1.PersistentVolumeClaim]
	pods   history[corev1.Pod]
	class  *storagev1.StorageClass
	now    time.Time
	made   int
	// phases are the phases that a watch has seen.
	phases   []cdiv1.DataVolumePhase
	progress float64
	// filled is the claim that a worker has filled to the end.
	filled types.UID
	// user is another's pod that uses the claim, or "".
	user string
	// meddled means that a user deleted the claim.
	meddled bool
}

type history[T any] struct {
	versions []*T
	seen     int
}

func (h *history[T]) last() *T   { return h.versions[len(h.versions)-1] }
func (h *history[T]) write(v *T) { h.versions = append(h.versions, v) }

// cached returns a version that a cache may show.
func (h *history[T]) cached(t *rapid.T, name string) *T {
	h.seen = rapid.IntRange(h.seen, len(h.versions)-1).Draw(t, name)
	return h.versions[h.seen]
}

func newModel(t *rapid.T) *model {
	mode := rapid.SampledFrom([]storagev1.VolumeBindingMode{storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer}).Draw(t, "binding")
	m := &model{class: class(mode), now: noon, progress: -1}
	source := rapid.SampledFrom([]cdiv1.DataVolumeSource{httpSource(), {Upload: &cdiv1.DataVolumeSourceUpload{}}}).Draw(t, "source")
	dv := newDV(source)
	if rapid.Bool().Draw(t, "immediate") {
		annotated(layout.AnnImmediate, "")(dv)
	}
	dv.ResourceVersion = "0"
	m.dvs.write(dv)
	m.claims.write(nil)
	m.pods.write(nil)
	return m
}

// controller is one round of the loop with its caches, cut off after budget actions as if the process had died.
func (m *model) controller(t *rapid.T, o Observed, budget int) {
	if o.DataVolume == nil {
		return
	}
	o.Class, o.Config, o.Now = m.class, ConfigOf(nil), m.now
	plan, current := m.plan(t, &o)
	if plan.Needs != "" {
		return
	}
	if plan.CreateClaim != nil && spend(&budget) && m.claims.last() == nil {
		m.createClaim(plan.CreateClaim.DeepCopy())
	}
	if plan.CreateWorker != nil && spend(&budget) && m.pods.last() == nil {
		m.createWorker(t, plan.CreateWorker, o.DataVolume)
	}
	if fmt.Sprint(plan.Status) != fmt.Sprint(o.DataVolume.Status) && spend(&budget) {
		if !current() {
			return // the API server refuses, because of another write
		}
		m.writeStatus(t, o.DataVolume.DeepCopy(), plan.Status)
	}
	if plan.DeleteWorker && spend(&budget) {
		m.deleteWorker(o.Worker.UID)
	}
}

func (m *model) createClaim(claim *corev1.PersistentVolumeClaim) {
	m.made++
	claim.UID = types.UID(fmt.Sprintf("claim-%d", m.made))
	claim.Status.Phase = corev1.ClaimPending
	m.claims.write(claim)
}

// deleteWorker deletes the pod if it has this UID.
func (m *model) deleteWorker(uid types.UID) {
	if pod := m.pods.last(); pod != nil && pod.UID == uid {
		m.deletePod()
	}
}

func (m *model) writeStatus(t *rapid.T, dv *cdiv1.DataVolume, status cdiv1.DataVolumeStatus) {
	dv.Status, dv.ResourceVersion = status, fmt.Sprint(len(m.dvs.versions))
	m.dvs.write(dv)
	m.watch(t, dv)
}

func (m *model) createWorker(t *rapid.T, worker *Worker, dv *cdiv1.DataVolume) {
	if m.dvs.last().Status.Phase == cdiv1.Succeeded {
		t.Fatal("a claim that others may use by now gets a worker again")
	}
	if m.user != "" {
		t.Fatal("a claim gets a worker while another pod uses it")
	}
	pod := podOf(dv, corev1.PodStatus{Phase: corev1.PodPending})
	m.made++
	pod.UID = types.UID(fmt.Sprintf("pod-%d", m.made))
	pod.Annotations = map[string]string{AnnRestarts: fmt.Sprint(worker.RestartsBefore)}
	m.pods.write(pod)
}

// plan decides and answers questions, as the loop does. The plan still has open questions when the DataVolume turns out
// to be another version.
func (m *model) plan(t *rapid.T, o *Observed) (plan Plan, current func() bool) {
	current = func() bool {
		return m.dvs.last() != nil && m.dvs.last().ResourceVersion == o.DataVolume.ResourceVersion
	}
	asked := map[Question]bool{}
	for plan = Decide(*o); plan.Needs != ""; plan = Decide(*o) {
		if asked[plan.Needs] {
			t.Fatalf("it asks for %s again, which was answered", plan.Needs)
		}
		asked[plan.Needs] = true
		switch plan.Needs {
		case NeedDataVolume:
			if o.Confirmed = current(); !o.Confirmed {
				return plan, current
			}
		case NeedProgress:
			o.Progress = &transfer.Progress{Total: 100, Done: rapid.Int64Range(0, 100).Draw(t, "done")}
		case NeedWarning:
			o.WarningAsked = true
		case NeedUsers:
			o.UsersAsked, o.UsedBy = true, m.user
		}
	}
	return plan, current
}

func spend(budget *int) bool {
	*budget--
	return *budget >= 0
}

// watch sees every version of the DataVolume and checks it.
func (m *model) watch(t *rapid.T, dv *cdiv1.DataVolume) {
	if phase := dv.Status.Phase; len(m.phases) == 0 || m.phases[len(m.phases)-1] != phase {
		m.phases = append(m.phases, phase)
	}
	how := methodOf(Observed{DataVolume: dv})
	path := how.path(waits(m.class) && !WantsImmediate(dv, nil))
	seen := slices.Clone(m.phases)
	if seen[len(seen)-1] == cdiv1.Failed {
		seen = seen[:len(seen)-1]
	}
	if len(seen) > len(path) || !slices.Equal(seen, path[:len(seen)]) {
		t.Fatalf("phases %v are not the beginning of %v", m.phases, path)
	}
	percent := percentOf(dv.Status.Progress)
	if percent < m.progress {
		t.Fatalf("progress went back from %v to %v", m.progress, percent)
	}
	m.progress = percent
	if dv.Status.Phase == cdiv1.Succeeded && m.filled == "" {
		t.Fatal("Succeeded, and no worker has filled the claim")
	}
}

func (m *model) deletePod() {
	pod := m.pods.last().DeepCopy()
	if pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp = &metav1.Time{Time: m.now}
		m.pods.write(pod)
	}
}

// kubelet moves the worker one step on.
func (m *model) kubelet(t *rapid.T) {
	pod := m.pods.last()
	claim := m.claims.last()
	if pod == nil || claim == nil {
		return
	}
	if claim.Status.Phase != corev1.ClaimBound {
		m.bind()
		return
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	next := pod.DeepCopy()
	switch rapid.SampledFrom([]string{"runs", "ready", "retries", "permanent", "evicted", "lost message", "completes"}).Draw(t, "worker") {
	case "runs":
		next.Status = running()
	case "ready":
		next.Status = running()
		next.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	case "retries":
		next.Status = restarting(1, transfer.Result{Reason: transfer.ReasonCut, Message: "cut"})
	case "permanent":
		next.Status = restarting(1, transfer.Result{Reason: transfer.ReasonTooLarge, Message: "too large"})
	case "evicted":
		next.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}
	case "lost message":
		next.Status = ended(corev1.PodSucceeded, 0, transfer.Result{})
	case "completes":
		next.Status = completed()
		m.filled = claim.UID
	}
	m.pods.write(next)
}

func (m *model) bind() {
	claim := m.claims.last().DeepCopy()
	claim.Status.Phase = corev1.ClaimBound
	m.claims.write(claim)
}

// removed deletes terminating objects, and those that have lost their owner.
func (m *model) removed() {
	if pod := m.pods.last(); pod != nil && (pod.DeletionTimestamp != nil || m.dvs.last() == nil) {
		m.pods.write(nil)
	}
	claim := m.claims.last()
	if claim != nil && m.pods.last() == nil && (claim.DeletionTimestamp != nil || m.dvs.last() == nil) {
		m.claims.write(nil)
	}
}

func TestNothingIsFilledTwiceOrHalfOrLeftBehind(t *testing.T) {
	propertytest.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"controller": func(t *rapid.T) {
				o := Observed{DataVolume: m.dvs.cached(t, "dv"), Claim: m.claims.cached(t, "claim"), Worker: m.pods.cached(t, "pod")}
				m.controller(t, o, rapid.IntRange(0, 4).Draw(t, "budget"))
			},
			"driver": func(*rapid.T) {
				if c := m.claims.last(); c != nil && c.Status.Phase != corev1.ClaimBound {
					m.bind()
				}
			},
			"kubelet": m.kubelet,
			"removal": func(*rapid.T) { m.removed() },
			"clock":   func(*rapid.T) { m.now = m.now.Add(3 * time.Second) },
			"somebody deletes the worker": func(*rapid.T) {
				if m.pods.last() != nil {
					m.deletePod()
				}
			},
			"somebody deletes the claim": func(t *rapid.T) {
				if c := m.claims.last(); c != nil && rapid.IntRange(0, 9).Draw(t, "luck") == 0 {
					c = c.DeepCopy()
					c.DeletionTimestamp = &metav1.Time{Time: m.now}
					m.claims.write(c)
					m.meddled = true
				}
			},
			"the DataVolume is deleted": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "luck") == 0 {
					m.dvs.write(nil)
				}
			},
			"a pod on the claim comes or goes": func(*rapid.T) {
				if m.user == "" && m.claims.last() != nil {
					m.user = "pod"
				} else {
					m.user = ""
				}
			},
			"": func(*rapid.T) {},
		})
		m.user = ""
		m.rest(t)
	})
}

// succeed lets a working worker fill its claim.
func (m *model) succeed() {
	pod, claim := m.pods.last(), m.claims.last()
	if pod == nil || claim == nil || pod.DeletionTimestamp != nil || podstatus.Terminal(pod) || new(observeWorker(pod)).permanent() {
		return
	}
	pod = pod.DeepCopy()
	pod.Status = completed()
	m.filled = claim.UID
	m.pods.write(pod)
}

// rest lets every part work until nothing changes, with current caches and a worker that succeeds.
func (m *model) rest(t *rapid.T) {
	for range 60 {
		m.controller(t, Observed{DataVolume: m.dvs.last(), Claim: m.claims.last(), Worker: m.pods.last()}, 9)
		m.removed()
		if c := m.claims.last(); c != nil && c.Status.Phase != corev1.ClaimBound {
			m.bind()
		}
		m.succeed()
	}
	// Whatever version a cache may still show, nothing may be made any more.
	for _, dv := range m.dvs.versions {
		m.controller(t, Observed{DataVolume: dv, Claim: m.claims.last(), Worker: m.pods.last()}, 9)
	}
	dv, pod, claim := m.dvs.last(), m.pods.last(), m.claims.last()
	switch {
	case pod != nil:
		t.Fatalf("the worker is left: %+v", pod.Status)
	case dv == nil && claim != nil:
		t.Fatal("the claim is left of a DataVolume that is gone")
	case dv == nil:
	case !Ended(dv):
		t.Fatalf("the DataVolume rests in phase %s: %+v", dv.Status.Phase, dv.Status.Conditions)
	case dv.Status.Phase == cdiv1.Succeeded && !m.meddled && (claim == nil || claim.UID != m.filled):
		t.Fatal("Succeeded, but the claim is not the one that was filled")
	}
}
