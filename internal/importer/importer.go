// Package importer is the worker that fills a claim: it reads its task, lets the
// right part do it, serves progress meanwhile and says at the end how it went.
//
// It holds no knowledge about sources and formats; those are below it: web,
// registry, upload and clone move content, fill makes disks of it.
package importer
