"""Hadoop's file system over HTTP (hdfs://, webhdfs://) for streamplug."""
