// Package rivals finds the guests and maintenance pods that must not run beside a guest or a maintainer of a machine's
// disks.
//
// It owns the lookups: by labels, which a policy protects, and by facts that nobody can change. vmicontroller decides
// which pods count. It must change nothing.
package rivals

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/controller/claimusers"
	"drydock.dev/drydock/internal/controller/maintainers"
	"drydock.dev/drydock/internal/controller/versioned"
	"drydock.dev/drydock/internal/pagedlist"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// index names the index of launcher pods by the stem of their VMI's name.
const index = "drydock.launcher-pods"

// Register adds the index, once.
func Register(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &corev1.Pod{}, index, stems); err != nil {
		return fmt.Errorf("indexing launcher pods by VMI: %w", err)
	}
	return nil
}

func stems(o client.Object) []string {
	if stem := launcherpod.NameStemOf(o); stem != "" && launcherpod.IsLauncher(o) {
		return []string{stem}
	}
	return nil
}

// Named returns the cached launcher pods of a name, which must not be changed.
func Named(ctx context.Context, cache client.Reader, name types.NamespacedName) ([]*corev1.Pod, error) {
	var list corev1.PodList
	err := cache.List(ctx, &list, client.InNamespace(name.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingFields{index: launcherpod.NameStem(name.Name)})
	if err != nil {
		return nil, fmt.Errorf("listing the launcher pods of VMIs of the name %s: %w", name, err)
	}
	var out []*corev1.Pod
	for i := range list.Items {
		if launcherpod.IsNamedFor(&list.Items[i], name.Name) {
			out = append(out, &list.Items[i])
		}
	}
	return out, nil
}

// Question describes whose rivals are sought.
type Question struct {
	// Namespace and Name are the machine's.
	Namespace, Name string
	// SameName includes earlier guests of that name.
	SameName bool
	// Nobody else may write to Claims.
	Claims []string
	Judge  func(*corev1.Pod) (vmicontroller.Rival, bool)
	// Maintenance means that the machine's own maintenance pods don't count.
	Maintenance bool
}

// Ask returns the rivals. The API server's lists are complete if the pods have kept their labels. Ask finds others in the
// cache, by the machine's name and by the VMIs that write to the claims, and reads each from the API server.
func Ask(ctx context.Context, reader, cache client.Reader, q Question) ([]vmicontroller.Rival, error) {
	s := &search{reader: reader, cache: cache, q: q, seen: map[string]bool{}}
	for _, step := range []func(context.Context) error{s.byLabels, s.byName, s.byClaims} {
		if err := step(ctx); err != nil {
			return nil, fmt.Errorf("looking for what %s/%s must not run beside: %w", q.Namespace, q.Name, err)
		}
	}
	return s.found, nil
}

type search struct {
	reader, cache client.Reader
	q             Question
	seen          map[string]bool
	found         []vmicontroller.Rival
}

func (s *search) add(rival vmicontroller.Rival, is bool) {
	if is {
		s.found = append(s.found, rival)
	}
}

func (s *search) byLabels(ctx context.Context) error {
	var selectors []client.MatchingLabels
	if s.q.SameName {
		selectors = append(selectors, client.MatchingLabels{
			v1.AppLabel: layout.LauncherApp, launcherpod.NameLabel: launcherpod.NameLabelValue(s.q.Name)})
	}
	for _, claim := range s.q.Claims {
		selectors = append(selectors, client.MatchingLabels{launcherpod.ClaimLabel(claim): ""})
	}
	counts := func(pod *corev1.Pod) bool { return launcherpod.IsLauncher(pod) || lock.For(pod) != "" }
	for _, selector := range selectors {
		// Any pod may have the label of a claim.
		pods, err := pagedlist.Pods(ctx, s.reader, s.q.Claims, counts, client.InNamespace(s.q.Namespace), selector)
		if err != nil {
			return fmt.Errorf("asking for pods: %w", err)
		}
		for i := range pods {
			if err := s.look(ctx, &pods[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// A pod of neither kind may be another VMI's.
func (s *search) look(ctx context.Context, pod *corev1.Pod) error {
	if s.seen[pod.Name] {
		return nil
	}
	switch machine := lock.For(pod); {
	case launcherpod.IsLauncher(pod):
		s.seen[pod.Name] = true
		s.add(s.q.Judge(pod))
	case machine != "" && (!s.q.Maintenance || machine != layout.LabelValue(s.q.Name)):
		s.seen[pod.Name] = true
		rival, is, err := maintainers.On(ctx, s.reader, s.q.Claims, pod)
		if err != nil {
			return err
		}
		s.add(rival, is)
	}
	return nil
}

// byName judges the pods of the machine's name that have lost their label.
func (s *search) byName(ctx context.Context) error {
	if !s.q.SameName {
		return nil
	}
	pods, err := Named(ctx, s.cache, types.NamespacedName{Namespace: s.q.Namespace, Name: s.q.Name})
	if err != nil {
		return err
	}
	for _, known := range pods {
		if s.seen[known.Name] {
			continue
		}
		pod, err := s.pod(ctx, known.Name)
		if err != nil {
			return err
		}
		if pod != nil {
			if err := s.look(ctx, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// manyPods is the number of pods from which listing their names costs less than reading each.
const manyPods = 8

// byClaims judges the pods of other VMIs that have lost the label of a claim. Any number of VMIs may wait, without a
// pod.
func (s *search) byClaims(ctx context.Context) error {
	owners := map[string]*v1.VirtualMachineInstance{}
	for _, claim := range s.q.Claims {
		key := &corev1.PersistentVolumeClaim{}
		key.Namespace, key.Name = s.q.Namespace, claim
		users, err := claimusers.List(ctx, s.cache, key)
		if err != nil {
			return err
		}
		for i := range users {
			for _, name := range s.unseen(&users[i]) {
				owners[name] = &users[i]
			}
		}
	}
	there, err := s.existing(ctx, slices.Sorted(maps.Keys(owners)))
	if err != nil {
		return err
	}
	for _, name := range there {
		s.seen[name] = true
		pod, err := s.pod(ctx, name)
		if err != nil {
			return err
		}
		if pod != nil {
			s.add(vmicontroller.HolderOf(s.q.Claims, owners[name], pod))
		}
	}
	return nil
}

// unseen returns the names of the pods that another VMI may have and that are not judged yet.
func (s *search) unseen(other *v1.VirtualMachineInstance) []string {
	if other.Name == s.q.Name || vmicontroller.WrittenBy(s.q.Claims, other) == "" {
		return nil
	}
	return slices.DeleteFunc([]string{launcherpod.CurrentName(other), launcherpod.OtherName(other)}, func(name string) bool {
		return name == "" || s.seen[name]
	})
}

// existing returns the names of the pods that may exist by the API server's list.
func (s *search) existing(ctx context.Context, names []string) ([]string, error) {
	if len(names) <= manyPods {
		return names, nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	there, err := pagedlist.Collect(ctx, s.reader, list, func(pod *metav1.PartialObjectMetadata) (string, bool) {
		return pod.Name, slices.Contains(names, pod.Name)
	}, client.InNamespace(s.q.Namespace))
	if err != nil {
		return nil, fmt.Errorf("asking which pods there are: %w", err)
	}
	return there, nil
}

func (s *search) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return versioned.Read[corev1.Pod](ctx, s.reader, "pod", types.NamespacedName{Namespace: s.q.Namespace, Name: name})
}
