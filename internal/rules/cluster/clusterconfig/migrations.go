package clusterconfig

import (
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

// NodeDrainTaintKey is KubeVirt's taint of nodes that are being drained.
const NodeDrainTaintKey = "kubevirt.io/drain"

// The defaults that KubeVirt documents for configuration.migrations.
const (
	defaultParallelPerCluster   uint32 = 5
	defaultParallelPerNode      uint32 = 2
	defaultSecondsPerGiB        int64  = 150
	defaultSecondsOfNoProgress  int64  = 150
	defaultUtilityVolumeSeconds int64  = 150
)

// migrations fills in unset fields. Without a network, guests migrate over the pod network.
func migrations(set *v1.MigrationConfiguration) v1.MigrationConfiguration {
	c := v1.MigrationConfiguration{}
	if set != nil {
		c = *set.DeepCopy()
	}
	or(&c.NodeDrainTaintKey, NodeDrainTaintKey)
	or(&c.ParallelMigrationsPerCluster, defaultParallelPerCluster)
	or(&c.ParallelOutboundMigrationsPerNode, defaultParallelPerNode)
	or(&c.AllowAutoConverge, false)
	or(&c.BandwidthPerMigration, resource.Quantity{})
	or(&c.CompletionTimeoutPerGiB, defaultSecondsPerGiB)
	or(&c.ProgressTimeout, defaultSecondsOfNoProgress)
	or(&c.UtilityVolumesTimeout, defaultUtilityVolumeSeconds)
	or(&c.UnsafeMigrationOverride, false)
	or(&c.AllowPostCopy, false)
	// The older field is the default of the newer one.
	or(&c.AllowWorkloadDisruption, *c.AllowPostCopy)
	or(&c.DisableTLS, false)
	or(&c.MatchSELinuxLevelOnMigration, false)
	return c
}

func or[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
