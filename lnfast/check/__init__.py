"""What stands behind `lnfast check`: does this build keep its promises on this machine?"""
