package render

import (
	_ "embed"
	"strings"
)

const (
	// StorageDriver is the CSI driver's name. It repeats the name in internal/csi, which links
	// gRPC; a test compares them.
	StorageDriver = "local.csi.drydock.dev"
	// StorageUser is the storage controller's user of the API server.
	StorageUser = "drydock:storage"
)

//go:embed storage.yaml
var storageManifest string

//go:embed snapshotclass.yaml
var snapshotClassManifest string

var storageNames = strings.NewReplacer("${DRIVER}", StorageDriver, "${USER}", StorageUser)

// Storage returns the driver, its classes and its controller's RBAC objects.
func Storage() string { return storageNames.Replace(storageManifest) }

// SnapshotClass needs the CRDs of the snapshot API.
func SnapshotClass() string { return storageNames.Replace(snapshotClassManifest) }
