package render

import (
	_ "embed"
	"strings"
)

const (
	// StorageDriver is the CSI driver's name. The driver has it in internal/csi,
	// which links gRPC; a test holds the two together.
	StorageDriver = "local.csi.drydock.dev"
	// StorageUser is who the storage controller is to the API server.
	StorageUser = "drydock:storage"
)

//go:embed storage.yaml
var storageManifest string

//go:embed snapshotclass.yaml
var snapshotClassManifest string

var storageNames = strings.NewReplacer("${DRIVER}", StorageDriver, "${USER}", StorageUser)

// Storage is the manifest of the driver, its classes and its controller's rights.
func Storage() string { return storageNames.Replace(storageManifest) }

// SnapshotClass is the manifest of the class of snapshots. It can be applied
// once the snapshot API is defined.
func SnapshotClass() string { return storageNames.Replace(snapshotClassManifest) }
