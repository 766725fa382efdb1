package migration

import (
	"cmp"
	"maps"
	"slices"

	v1 "kubevirt.io/api/core/v1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
)

// Configuration is the effective configuration of a migration.
type Configuration struct {
	v1.VMIMConfigurationOptions
	Policy string // the name of the MigrationPolicy, "" for none
}

// Effective returns a VMI's configuration: the cluster's, which has every field set, overridden by the best matching
// policy. It excludes pause and post-copy for a guest with a liveness probe over the network: the probe would fail, and
// the kubelet would end the pod before the guest is elsewhere.
func Effective(cluster v1.MigrationConfiguration, policies []migrationsv1alpha1.MigrationPolicy,
	vmi *v1.VirtualMachineInstance, namespaceLabels map[string]string) Configuration {
	c := Configuration{VMIMConfigurationOptions: options(cluster.DeepCopy())}
	if policy := best(policies, vmi.Labels, namespaceLabels); policy != nil {
		c.Policy = policy.Name
		spec := policy.Spec.DeepCopy()
		if spec.AllowPostCopy != nil && spec.AllowWorkloadDisruption == nil {
			// As in the cluster's configuration.
			spec.AllowWorkloadDisruption = spec.AllowPostCopy
		}
		override(&c.AllowAutoConverge, spec.AllowAutoConverge)
		override(&c.BandwidthPerMigration, spec.BandwidthPerMigration)
		override(&c.CompletionTimeoutPerGiB, spec.CompletionTimeoutPerGiB)
		override(&c.MaxDowntimeMs, spec.MaxDowntimeMs)
		override(&c.AllowPostCopy, spec.AllowPostCopy)
		override(&c.AllowWorkloadDisruption, spec.AllowWorkloadDisruption)
	}
	if p := vmi.Spec.LivenessProbe; p != nil && (p.TCPSocket != nil || p.HTTPGet != nil) {
		c.AllowPostCopy, c.AllowWorkloadDisruption = new(false), new(false)
	}
	return c
}

func options(c *v1.MigrationConfiguration) v1.VMIMConfigurationOptions {
	return v1.VMIMConfigurationOptions{
		NodeDrainTaintKey: c.NodeDrainTaintKey, Network: c.Network,
		ParallelOutboundMigrationsPerNode: c.ParallelOutboundMigrationsPerNode, ParallelMigrationsPerCluster: c.ParallelMigrationsPerCluster,
		AllowAutoConverge: c.AllowAutoConverge, BandwidthPerMigration: c.BandwidthPerMigration, MaxDowntimeMs: c.MaxDowntimeMs,
		CompletionTimeoutPerGiB: c.CompletionTimeoutPerGiB, ProgressTimeout: c.ProgressTimeout, UtilityVolumesTimeout: c.UtilityVolumesTimeout,
		UnsafeMigrationOverride: c.UnsafeMigrationOverride, AllowPostCopy: c.AllowPostCopy, AllowWorkloadDisruption: c.AllowWorkloadDisruption,
		DisableTLS: c.DisableTLS, MatchSELinuxLevelOnMigration: c.MatchSELinuxLevelOnMigration,
	}
}

func override[T any](field **T, value *T) {
	if value != nil {
		*field = value
	}
}

// best returns the matching policy with the most labels, then by the labels' names, then by its own; nil for none.
func best(policies []migrationsv1alpha1.MigrationPolicy, vmi, namespace map[string]string) *migrationsv1alpha1.MigrationPolicy {
	var found *migrationsv1alpha1.MigrationPolicy
	var its []string
	for i := range policies {
		p := &policies[i]
		keys, fits := matched(p.Spec.Selectors, vmi, namespace)
		if fits && (found == nil || before(keys, p.Name, its, found.Name)) {
			found, its = p, keys
		}
	}
	return found
}

func before(keys []string, name string, others []string, other string) bool {
	return cmp.Or(cmp.Compare(len(others), len(keys)), slices.Compare(keys, others), cmp.Compare(name, other)) < 0
}

// matched returns a policy's sorted keys, and whether all match. A policy without keys matches nothing: it would replace
// the cluster's configuration unnoticed.
func matched(selectors *migrationsv1alpha1.Selectors, vmi, namespace map[string]string) (keys []string, fits bool) {
	if selectors == nil {
		return nil, false
	}
	for _, s := range []struct{ asked, there map[string]string }{
		{selectors.VirtualMachineInstanceSelector, vmi}, {selectors.NamespaceSelector, namespace},
	} {
		for key, value := range s.asked {
			if has, there := s.there[key]; !there || has != value {
				return nil, false
			}
		}
		keys = slices.AppendSeq(keys, maps.Keys(s.asked))
	}
	slices.Sort(keys)
	return keys, len(keys) > 0
}
