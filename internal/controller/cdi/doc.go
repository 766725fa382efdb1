// Package cdi settles between Drydock and CDI who serves DataVolumes, and keeps
// what Drydock serves of CDI's API when it is Drydock.
//
// CDI is installed when its CustomResourceDefinition cdis.cdi.kubevirt.io, its
// Deployment cdi-deployment and the CDI object that controls the Deployment
// exist. Then Drydock leaves every object of CDI's API alone. The first two are
// watched, so that it stands down and takes over without a restart.
//
// Drydock's manifests do not carry CDI's definitions, since applied over CDI's
// own they would damage them. virt-controller creates those that are missing,
// before its loops start and whenever one goes, and updates those that bear its
// label; others are somebody else's (decision 123).
//
// It owns those definitions, and CDIConfig's status while Drydock serves. It must
// not look at any DataVolume.
package cdi
